// What this machine has, how fast it is, and what to change if something is slow: denseformer
// doctor.
#ifndef DENSEFORMER_PERF_MACHINE_H_
#define DENSEFORMER_PERF_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "tensor/dtype.h"

namespace denseformer {

// A GEMM of the backend in use.
struct GemmSpeed {
  DType compute = DType::kF32;
  std::string backend;      // its name in the table of backends
  std::string description;  // the library and its version
  double flops = 0;         // per second, best of several calls
  double peak = 0;  // what the instructions in use could do at the measured clock; 0: unknown
};

struct Machine {
  std::string cpu;            // name of the model, "" where the system does not say
  CpuFeatures features;       // in use: limited by DENSEFORMER_CPU
  int online_cpus = 0;        // of the machine
  int allowed_cpus = 0;       // that this process may run on
  int allowed_cores = 0;      // physical cores among them; 0: unknown
  int threads = 0;            // that the program uses
  double cgroup_cpus = 0;     // CPU time per second that the control group allows; 0: no limit
  int64_t cgroup_memory = 0;  // bytes; 0: no limit
  int64_t available_memory = 0;
  double load = 0;               // running processes, mean over the last minute; -1: unknown
  std::string governor;          // frequency governor; "": unknown
  double clock = 0;              // Hz, measured; 0: unknown
  double bandwidth = 0;          // bytes per second read from memory by all threads
  std::vector<GemmSpeed> gemms;  // fp32, bf16
  std::string mpi;               // version, or "none"
};

// Looks and measures; takes about two seconds.
Machine MeasureMachine();

// Floating point operations per cycle and core with these features, two FMA units assumed.
double PeakFlopsPerCycle(CpuFeatures features, DType compute);

// What is slow or wasted and what to do about it, one sentence each; empty where all is well.
std::vector<std::string> MachineAdvice(const Machine& machine);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_MACHINE_H_

#include "perf/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <functional>
#include <set>
#include <span>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "dist/communicator.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/gemm.h"
#include "perf/interleave.h"
#include "perf/memory_limit.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

// The shortest of the calls that fit into `budget` seconds, at least three.
double BestSeconds(double budget, std::function<void()> call) {
  InterleaveOptions options;
  options.rounds = 3;
  options.seconds = budget;
  return Interleave({{"", std::move(call)}}, options).front().minimum();
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos)
      return std::string(Trim(std::string_view(line).substr(colon + 1)));
  }
  return "";
}

// "150000 100000": microseconds of CPU time per period; "max 100000": no limit.
double CgroupCpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && period > 0 ? quota / period : 0;
}

int64_t CgroupMemory() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  int64_t bytes = 0;
  return file >> bytes ? bytes : 0;
}

// Counts the CPUs of the affinity mask, and the cores that they are threads of.
void CountCpus(Machine& machine) {
  machine.online_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return;
  machine.allowed_cpus = CPU_COUNT(&set);
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string siblings =
        FirstLine(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    if (!siblings.empty()) cores.insert(siblings);
  }
  machine.allowed_cores = static_cast<int>(cores.size());
}

double Load() {
  std::ifstream file("/proc/loadavg");
  double load = 0;
  return file >> load ? load : -1;
}

// Additions that each wait for the one before: one per cycle. Of a register: some CPUs take several
// dependent additions of a constant in one cycle, when they rename registers.
double MeasureClock() {
#if defined(__x86_64__)
  constexpr int64_t kAdditions = int64_t{1} << 22;
  const double seconds = BestSeconds(0.1, [] {
    uint64_t value = 1;
    const uint64_t one = 1;
    for (int64_t n = 0; n < kAdditions / 8; ++n) {
      asm volatile(
          "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
          "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0"
          : "+r"(value)
          : "r"(one));
    }
  });
  return static_cast<double>(kAdditions) / seconds;
#else
  return 0;
#endif
}

double MeasureBandwidth() {
  const size_t bytes = static_cast<size_t>(
      std::clamp<int64_t>(AvailableMemory() / 8, int64_t{1} << 20, int64_t{256} << 20));
  const Storage buffer(bytes);
  std::byte* data = static_cast<std::byte*>(buffer.data());
  std::fill(data, data + bytes, std::byte{1});
  uint64_t sum = 0;
  const double seconds =
      BestSeconds(0.3, [&] { sum += ReadBytes(std::span<const std::byte>(data, bytes)); });
  asm volatile("" : : "r"(sum));
  return static_cast<double>(bytes) / seconds;
}

GemmSpeed MeasureGemm(DType compute, const Machine& machine) {
  constexpr int64_t kRows = 512, kSize = 1024;
  const GemmBackend& backend = GemmBackendFor(compute);
  GemmSpeed rate;
  rate.compute = compute;
  rate.backend = backend.name;
  rate.description = backend.description();
  const Storage master(kSize * kSize * sizeof(float)), x(kRows * kSize * sizeof(float)),
      y(kRows * kSize * sizeof(float));
  const Tensor weight(static_cast<float*>(master.data()), {kSize, kSize});
  std::fill(weight.f32(), weight.f32() + weight.count(), 0.01f);
  PackedWeight packed(weight, compute);
  packed.Refresh();
  std::fill(static_cast<std::byte*>(x.data()),
            static_cast<std::byte*>(x.data()) + kRows * kSize * sizeof(float), std::byte{0});
  const Tensor input(x.data(), compute, {kRows, kSize}), output(y.data(), compute, {kRows, kSize});
  const double seconds = BestSeconds(0.4, [&] { LinearForward(input, packed, Tensor(), output); });
  rate.flops = 2.0 * kRows * kSize * kSize / seconds;
  const int cores = machine.allowed_cores > 0 ? std::min(machine.allowed_cores, machine.threads)
                                              : machine.threads;
  rate.peak = machine.clock * cores * PeakFlopsPerCycle(machine.features, compute);
  return rate;
}

}  // namespace

double PeakFlopsPerCycle(CpuFeatures features, DType compute) {
  const double fp32 = features.Has(CpuFeature::kAvx512) ? 64
                      : features.Has(CpuFeature::kAvx2) ? 32
                                                        : 8;
  if (compute == DType::kF32) return fp32;
  if (features.Has(CpuFeature::kAmxBf16)) return 1024;  // 16 x 16 x 32 products in 16 cycles
  return features.Has(CpuFeature::kAvx512Bf16) ? 2 * fp32 : fp32;
}

Machine MeasureMachine() {
  Machine machine;
  machine.cpu = CpuModel();
  machine.features = GetCpuFeatures();
  CountCpus(machine);
  machine.threads = NumThreads();
  machine.cgroup_cpus = CgroupCpus();
  machine.cgroup_memory = CgroupMemory();
  machine.available_memory = AvailableMemory();
  machine.load = Load();
  machine.governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  machine.mpi = MpiVersion();
  machine.clock = MeasureClock();
  machine.bandwidth = MeasureBandwidth();
  for (const DType compute : {DType::kF32, DType::kBF16})
    machine.gemms.push_back(MeasureGemm(compute, machine));
  return machine;
}

std::vector<std::string> MachineAdvice(const Machine& machine) {
  std::vector<std::string> advice;
  if (!machine.features.Has(CpuFeature::kAvx2)) {
    advice.push_back(
        "The kernels run without AVX2: unset DENSEFORMER_CPU, or use a CPU (or a virtual machine's "
        "CPU model) that has it.");
  }
  if (machine.cgroup_cpus > 0 && machine.cgroup_cpus < machine.threads) {
    advice.push_back(fmt::format(
        "The control group allows {:.1f} CPUs but {} threads are used, which then wait for each "
        "other: give --threads {} or raise the limit.",
        machine.cgroup_cpus, machine.threads, std::max(1, static_cast<int>(machine.cgroup_cpus))));
  }
  if (machine.threads < machine.allowed_cores) {
    advice.push_back(fmt::format("{} of {} cores are used: raise --threads or DENSEFORMER_THREADS.",
                                 machine.threads, machine.allowed_cores));
  }
  if (machine.threads > machine.allowed_cpus && machine.allowed_cpus > 0) {
    advice.push_back(fmt::format("{} threads share {} CPUs: give --threads {}.", machine.threads,
                                 machine.allowed_cpus, machine.allowed_cpus));
  }
  if (machine.allowed_cpus > 0 && machine.allowed_cpus < machine.online_cpus) {
    advice.push_back(
        fmt::format("This process may run on {} of {} CPUs (taskset, cpuset or a batch system).",
                    machine.allowed_cpus, machine.online_cpus));
  }
  if (machine.load > 0.5 * machine.online_cpus) {
    advice.push_back(fmt::format(
        "Other processes are running (load {:.1f} on {} CPUs): the rates measured here, and "
        "training, are slower than the machine allows.",
        machine.load, machine.online_cpus));
  }
  if (machine.governor == "powersave" || machine.governor == "conservative") {
    advice.push_back(fmt::format(
        "The frequency governor is '{}': 'cpupower frequency-set -g performance' (as root) lets "
        "the CPU keep its clock.",
        machine.governor));
  }
  for (const GemmSpeed& gemm : machine.gemms) {
    if (gemm.backend == "reference") {
      advice.push_back(fmt::format(
          "{} GEMMs use the plain reference backend, which is slow: unset DENSEFORMER_GEMM.",
          DTypeName(gemm.compute)));
    } else if (gemm.compute == DType::kF32 && gemm.peak > 0 && gemm.flops < 0.4 * gemm.peak) {
      advice.push_back(fmt::format(
          "fp32 GEMMs reach {:.0f} % of the peak: look for other processes, a virtual machine that "
          "shares its cores, or fewer physical cores than threads.",
          100 * gemm.flops / gemm.peak));
    }
  }
  return advice;
}

}  // namespace denseformer

// denseformer doctor: what this machine has, how fast it is, and what to change if it is slow.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "perf/machine.h"

namespace denseformer {
namespace {

struct Options {};

std::string Share(const GemmSpeed& gemm) {
  if (gemm.peak <= 0) return "peak unknown";
  return fmt::format("{:.0f} % of a peak of {:.1f}", 100 * gemm.flops / gemm.peak, gemm.peak / 1e9);
}

nlohmann::ordered_json ToJson(const Machine& machine, const std::vector<std::string>& advice) {
  // 0 and -1 stand for "unknown" or "no limit".
  const auto known = [](double value) {
    return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json gemms = nlohmann::ordered_json::array();
  for (const GemmSpeed& gemm : machine.gemms) {
    gemms.push_back({{"dtype", DTypeName(gemm.compute)},
                     {"backend", gemm.backend},
                     {"description", gemm.description},
                     {"flops", gemm.flops},
                     {"peak_flops", known(gemm.peak)}});
  }
  return {{"cpu", machine.cpu},
          {"features", CpuName(machine.features)},
          {"instructions", CpuFeatureList(machine.features)},
          {"online_cpus", machine.online_cpus},
          {"allowed_cpus", machine.allowed_cpus},
          {"allowed_cores", known(machine.allowed_cores)},
          {"threads", machine.threads},
          {"cgroup_cpus", known(machine.cgroup_cpus)},
          {"cgroup_memory", known(static_cast<double>(machine.cgroup_memory))},
          {"available_memory", machine.available_memory},
          {"load", machine.load},
          {"governor", machine.governor},
          {"clock_hz", known(machine.clock)},
          {"memory_bytes_per_second", machine.bandwidth},
          {"gemm", gemms},
          {"mpi", machine.mpi},
          {"advice", advice}};
}

void PrintMachine(const Machine& machine, const std::vector<std::string>& advice) {
  Print("CPU        {}\n", machine.cpu.empty() ? "unknown" : machine.cpu);
  Print("features   {} ({})\n", CpuName(machine.features), CpuFeatureList(machine.features));
  if (machine.clock > 0) Print("clock      {:.2f} GHz (measured)\n", machine.clock / 1e9);
  Print("threads    {} on {} of {} CPUs", machine.threads, machine.allowed_cpus,
        machine.online_cpus);
  if (machine.allowed_cores > 0) Print(" ({} cores)", machine.allowed_cores);
  Print("\n");
  Print(
      "limits     CPU {}, memory {} (control group)\n",
      machine.cgroup_cpus > 0 ? fmt::format("{:.1f}", machine.cgroup_cpus) : "none",
      machine.cgroup_memory > 0 ? HumanBytes(static_cast<double>(machine.cgroup_memory)) : "none");
  Print("memory     {} available, {:.1f} GB/s read\n",
        HumanBytes(static_cast<double>(machine.available_memory)), machine.bandwidth / 1e9);
  for (const GemmSpeed& gemm : machine.gemms) {
    Print("{} GEMM  {}: {:.1f} GFLOP/s, {} ({})\n", DTypeName(gemm.compute), gemm.backend,
          gemm.flops / 1e9, Share(gemm), gemm.description);
  }
  Print("MPI        {}\n", machine.mpi);
  if (advice.empty()) Print("\nNothing to change.\n");
  for (const std::string& sentence : advice) Print("\n- {}", sentence);
  if (!advice.empty()) Print("\n");
}

void Doctor(const CommonOptions& common) {
  const Machine machine = MeasureMachine();
  const std::vector<std::string> advice = MachineAdvice(machine);
  if (common.json) {
    PrintJson(ToJson(machine, advice));
  } else {
    PrintMachine(machine, advice);
  }
}

}  // namespace

void AddDoctor(CLI::App& app, CommonOptions& common) {
  app.footer(
      "Takes about two seconds. The peak counts two FMA units per core at the measured clock.\n"
      "Examples:\n"
      "  denseformer doctor\n"
      "  denseformer doctor --json");
  SetWork(app, common, std::make_shared<Options>(), [&common](const Options&) { Doctor(common); });
}

}  // namespace denseformer

#include "perf/machine.h"

#include <gtest/gtest.h>

#include <functional>

namespace denseformer {
namespace {

Machine Healthy() {
  Machine machine;
  machine.features = {CpuFeature::kAvx2};
  machine.online_cpus = machine.allowed_cpus = machine.allowed_cores = machine.threads = 8;
  machine.load = 0.2;
  machine.governor = "performance";
  machine.gemms = {{DType::kF32, "onednn", "oneDNN", 8e11, 1e12}};
  return machine;
}

// The one sentence of advice that a change of a healthy machine gives.
std::string AdviceAfter(const std::function<void(Machine&)>& change) {
  Machine machine = Healthy();
  change(machine);
  const std::vector<std::string> advice = MachineAdvice(machine);
  EXPECT_EQ(advice.size(), 1u);
  return advice.empty() ? "" : advice[0];
}

TEST(MachineAdvice, NamesWhatIsSlowAndTheRemedy) {
  EXPECT_TRUE(MachineAdvice(Healthy()).empty());
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(AdviceAfter([](Machine& m) { m.features = {}; }), "without AVX2");
  contains(AdviceAfter([](Machine& m) { m.cgroup_cpus = 1.5; }), "give --threads 1");
  contains(AdviceAfter([](Machine& m) { m.threads = 4; }), "4 of 8 cores are used");
  contains(AdviceAfter([](Machine& m) { m.threads = 9; }), "9 threads share 8 CPUs");
  contains(AdviceAfter([](Machine& m) { m.online_cpus = 16; }), "8 of 16 CPUs");
  contains(AdviceAfter([](Machine& m) { m.load = 6; }), "Other processes");
  contains(AdviceAfter([](Machine& m) { m.governor = "powersave"; }), "governor is 'powersave'");
  contains(AdviceAfter([](Machine& m) { m.gemms[0].backend = "reference"; }),
           "unset DENSEFORMER_GEMM");
  contains(AdviceAfter([](Machine& m) { m.gemms[0].flops = 2e11; }), "20 % of the peak");
}

TEST(PeakFlopsPerCycle, FollowsTheFeatures) {
  using enum CpuFeature;
  EXPECT_EQ(PeakFlopsPerCycle({}, DType::kF32), 8);
  EXPECT_EQ(PeakFlopsPerCycle({kAvx2}, DType::kF32), 32);
  EXPECT_EQ(PeakFlopsPerCycle({kAvx2}, DType::kBF16), 32);
  EXPECT_EQ(PeakFlopsPerCycle({kAvx2, kAvx512}, DType::kF32), 64);
  EXPECT_EQ(PeakFlopsPerCycle({kAvx2, kAvx512, kAvx512Bf16}, DType::kBF16), 128);
  EXPECT_EQ(PeakFlopsPerCycle({kAvx2, kAvx512, kAvx512Bf16, kAmxBf16}, DType::kBF16), 1024);
}

TEST(MeasureMachine, FindsThisMachine) {
  const Machine machine = MeasureMachine();
  EXPECT_GE(machine.online_cpus, machine.allowed_cpus);
  EXPECT_GE(machine.allowed_cpus, 1);
  EXPECT_GE(machine.threads, 1);
  // Other work can only make it look slower; a loop that the CPU shortens makes it look faster.
  EXPECT_LT(machine.clock, 8e9);
  EXPECT_GT(machine.bandwidth, 0);
  EXPECT_GT(machine.available_memory, 0);
  ASSERT_EQ(machine.gemms.size(), 2u);
  for (const GemmSpeed& gemm : machine.gemms) EXPECT_GT(gemm.flops, 0);
  EXPECT_FALSE(machine.mpi.empty());
}

}  // namespace
}  // namespace denseformer

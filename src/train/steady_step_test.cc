// A steady training step allocates nothing: everything was planned or grown in the first steps.
// Where oneDNN computes the GEMMs it allocates its lists of arguments inside, which is out of
// our hands; no memory is touched for the first time there either.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "kernels/gemm/backend.h"
#include "train/train_step.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Counts every C++ allocation of the program. GCC sees malloc behind new and free behind delete
// separately.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  ++allocations;
  const size_t align = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace denseformer {
namespace {

int64_t PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

struct Case {
  const char* dwa;
  DType compute;
  bool recompute = false;
};

// The name of the case among the tests.
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.dwa << " " << DTypeName(c.compute) << (c.recompute ? " recompute" : "");
}

class SteadyStep : public ::testing::TestWithParam<Case> {};

// Steps of a small model on `backend`.
void TakeSteps(const Case& c, const GemmBackend& backend) {
  const bool slow = std::string_view(backend.name) == "reference";
  const std::string preset = slow ? "test" : "tiny";
  ModelConfig config = ModelConfig::Preset(preset);
  config.dwa = c.dwa;
  if (slow && config.dwa == "4x5") config.dwa = "2x2";  // it has fewer blocks
  Model model(config, c.compute, ModelUse::kTraining);
  model.Initialize(1);
  const int64_t sequences = 2, length = slow ? 16 : 64;
  Activations activations(model, sequences, length, ModelUse::kTraining, c.recompute);
  std::vector<int32_t> tokens(static_cast<size_t>(sequences * length)), targets(tokens.size());
  Random random(1);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(config.vocab_size));
  for (int32_t& token : targets) token = static_cast<int32_t>(random.Below(config.vocab_size));
  TrainOptions options = PresetOptions(preset);
  options.accumulate = 2;
  options.dropout = 0.1;
  options.clip = 0.5;
  TrainStep train_step(model, activations, options);
  auto steps = [&] {
    const int64_t before = allocations;
    for (int i = 0; i < 3; ++i) {
      const StepResult result = train_step.Run(1, 1e-3, [&](int64_t, int) {
        return Batch{tokens, targets, sequences, length};
      });
      EXPECT_TRUE(result.updated);
    }
    return allocations - before;
  };
  steps();
  [[maybe_unused]] const int64_t faults = PageFaults();
  // oneDNN makes lists of arguments in each call; there are as many of them in every step.
  const int64_t made = steps();
  if (std::string_view(backend.name) == "onednn") {
    EXPECT_EQ(steps(), made);
  } else {
    EXPECT_EQ(made, 0);
  }
#if !defined(__SANITIZE_ADDRESS__)
  // Whatever the system does beside us may fault a few pages; a set of activations would be
  // hundreds. (The sanitizer keeps freed memory back, so that oneDNN's lists touch new pages all
  // the time.)
  EXPECT_LE(PageFaults() - faults, 64);
#endif
}

TEST_P(SteadyStep, AllocatesNothing) {
  for (const GemmBackend* backend : AvailableGemmBackends(GetParam().compute)) {
    SCOPED_TRACE(backend->name);
    const ScopedGemmBackend scoped(backend);
    TakeSteps(GetParam(), *backend);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SteadyStep,
                         ::testing::Values(Case{"none", DType::kBF16}, Case{"1x1", DType::kBF16},
                                           Case{"4x5", DType::kBF16}, Case{"1x1", DType::kF32},
                                           Case{"4x5", DType::kF32},
                                           Case{"1x1", DType::kBF16, true},
                                           Case{"4x5", DType::kF32, true}));

}  // namespace
}  // namespace denseformer

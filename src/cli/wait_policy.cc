#include "cli/wait_policy.h"

#include <unistd.h>

#include <cstdlib>

namespace denseformer {
namespace {
// Some 100 microseconds. On an idle machine a step of the preset `tiny` takes as long as with the
// library's own 300,000 and less than half of what it takes with 200; on a busy one a tenth.
constexpr const char* kSpins = "2000";
}  // namespace

void UseShortSpin(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", kSpins, 1) != 0) return;
  // Where this fails the program goes on: slower on a busy machine, with the same results.
  execv("/proc/self/exe", argv);
}

}  // namespace denseformer

#include "cli/wait_policy.h"

#include <unistd.h>

#include <cstdlib>

namespace denseformer {
namespace {
// Some 10 microseconds: about what it takes to wake a thread that sleeps.
constexpr const char* kSpins = "200";
}  // namespace

void UseShortSpin(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", kSpins, 1) != 0) return;
  // Where this fails the program goes on: slower on a busy machine, with the same results.
  execv("/proc/self/exe", argv);
}

}  // namespace denseformer

#include "cli/run_ranks.h"

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "base/error.h"

namespace denseformer {

void RunOrFail(Communicator& world, FunctionRef<void()> work) {
  try {
    work();
  } catch (const Error& error) {
    world.Fail(error.what(), ExitStatus(error.code()));
  } catch (const std::bad_alloc&) {
    world.Fail("out of memory", 1);
  } catch (const std::exception& error) {
    world.Fail(fmt::format("unexpected: {} (this is a bug, please report it)", error.what()), 1);
  }
}

void WaitForFirstRank() {
  // Open MPI, MPICH and its relatives, PMIx.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank == nullptr) continue;
    if (std::atoi(rank) > 0) std::this_thread::sleep_for(std::chrono::seconds(5));
    return;
  }
}

}  // namespace denseformer

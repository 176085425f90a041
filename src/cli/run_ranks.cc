#include "cli/run_ranks.h"

#include <new>

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

}  // namespace denseformer

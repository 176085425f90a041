// Takes the place of mpi.cc where there is no MPI.
#include "base/error.h"
#include "dist/communicator.h"

namespace denseformer {

std::unique_ptr<Communicator> MakeWorldCommunicator() {
  if (const int processes = LaunchedProcesses(); processes > 1) {
    Throw(ErrorCode::kUnsupported,
          "several processes: {} were started together, but this program was built without MPI; "
          "install libopenmpi-dev and build it again, or start one process",
          processes);
  }
  return MakeSingleCommunicator();
}

std::string MpiVersion() { return "none"; }

}  // namespace denseformer

// A command on several ranks.
#ifndef DENSEFORMER_CLI_RUN_RANKS_H_
#define DENSEFORMER_CLI_RUN_RANKS_H_

#include "base/function_ref.h"
#include "dist/communicator.h"

namespace denseformer {

// Calls work(). Whatever it throws ends all ranks, with one line of rank 0 and the error's exit
// status, and this does not return.
void RunOrFail(Communicator& world, FunctionRef<void()> work);

// Before the message of a failure outside RunOrFail, such as a wrong call: processes that were
// started together fail alike, and the launcher ends all as soon as one has ended. So rank 0 goes
// first; the others wait for the launcher for a while.
void WaitForFirstRank();

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_RUN_RANKS_H_

// How long OpenMP's threads spin while they wait for work.
#ifndef DENSEFORMER_CLI_WAIT_POLICY_H_
#define DENSEFORMER_CLI_WAIT_POLICY_H_

namespace denseformer {

// Starts the program again with a short spin, unless the environment has a word on it already or
// this is that second start. OpenMP's run-time library reads its settings once, before main(); by
// default a waiting thread spins for milliseconds, and where another program wants the core the
// thread that everybody waits for does not get it: steps take ten times as long.
void UseShortSpin(char** argv);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_WAIT_POLICY_H_

// `bench serve`, a sub-command of its own kind: it measures a server, not a pass.
#ifndef DENSEFORMER_CLI_BENCH_SERVE_H_
#define DENSEFORMER_CLI_BENCH_SERVE_H_

#include "cli/command.h"

namespace denseformer {

void AddBenchServe(CLI::App& parent, CommonOptions& common);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_BENCH_SERVE_H_

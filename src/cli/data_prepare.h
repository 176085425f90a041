// denseformer data prepare: corpora to token files.
#ifndef DENSEFORMER_CLI_DATA_PREPARE_H_
#define DENSEFORMER_CLI_DATA_PREPARE_H_

#include "cli/command.h"

namespace denseformer {

void AddDataPrepare(CLI::App& parent, CommonOptions& common);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_DATA_PREPARE_H_

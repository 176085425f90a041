// denseformer tokenizer encode | decode: filters from standard input to standard output.
#ifndef DENSEFORMER_CLI_TOKENIZER_FILTERS_H_
#define DENSEFORMER_CLI_TOKENIZER_FILTERS_H_

#include "cli/command.h"

namespace denseformer {

void AddTokenizerFilters(CLI::App& parent, CommonOptions& common);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_TOKENIZER_FILTERS_H_

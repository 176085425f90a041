// Standard input, for the commands that are filters.
#ifndef DENSEFORMER_CLI_INPUT_H_
#define DENSEFORMER_CLI_INPUT_H_

#include <string>

namespace denseformer {

// All of it. Throws kIo.
std::string ReadStdin();

// The next line, without its end; false at the end of the input. Throws kIo.
bool ReadStdinLine(std::string* line);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_INPUT_H_

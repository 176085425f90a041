// For tests: runs the program as users do, and gives back what it printed.
#ifndef DENSEFORMER_CLI_RUN_PROGRAM_H_
#define DENSEFORMER_CLI_RUN_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace denseformer {

struct ProgramResult {
  int status = 0;  // exit status; 128 + number where a signal ended it
  std::string out, err;
  int64_t peak_bytes = 0;  // the most memory it held
};

// The path of the program.
const char* ProgramPath();

// Runs the program with `arguments`; `input` is its standard input. `shell_prefix`, where
// given, stands before the program in the shell's line ("ulimit -v 100000;").
ProgramResult RunProgram(const std::vector<std::string>& arguments, const std::string& input = "",
                         const std::string& shell_prefix = "",
                         const std::string& shell_suffix = "");

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_RUN_PROGRAM_H_

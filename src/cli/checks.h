// Checks of the values of options, in the words of all other errors: "got X, expected Y".
#ifndef DENSEFORMER_CLI_CHECKS_H_
#define DENSEFORMER_CLI_CHECKS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace denseformer {

// A whole number from `low` to `high`.
CLI::Validator WholeNumber(int64_t low, int64_t high = std::numeric_limits<int64_t>::max());

// A finite number from `low` to `high`.
CLI::Validator Number(double low, double high = std::numeric_limits<double>::max());

// One of `names`, which --help lists.
CLI::Validator OneOf(std::vector<std::string> names);

// The name of a file to write: not that of a directory.
CLI::Validator FileToWrite();

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_CHECKS_H_

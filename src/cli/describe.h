// The commands and options of the program as data, read from the parser itself, so that completion
// and the manual page cannot differ from it.
#ifndef DENSEFORMER_CLI_DESCRIBE_H_
#define DENSEFORMER_CLI_DESCRIBE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace denseformer {

struct OptionText {
  std::vector<std::string> names;    // "-o", "--output"; of a positional argument its name alone
  std::string value;                 // "INT", "TEXT"; "" for a flag
  std::vector<std::string> choices;  // where the value is one of a few
  std::string help;
  std::string initial;  // the default, or ""
  bool positional = false;
};

struct CommandText {
  std::string path;  // "data prepare"; "" for the program itself
  std::string help, footer;
  std::vector<OptionText> options;
  std::vector<CommandText> children;
};

// The names to show of an option, as they are typed: "-o", "--output".
std::vector<std::string> NamesOf(const CLI::Option& option);

CommandText DescribeCommand(const CLI::App& app, const std::string& path = "");

// The parser that `app` is a command of.
const CLI::App& RootOf(const CLI::App& app);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_DESCRIBE_H_

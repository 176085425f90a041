// The layout of --help.
#ifndef DENSEFORMER_CLI_HELP_FORMAT_H_
#define DENSEFORMER_CLI_HELP_FORMAT_H_

#include <CLI/CLI.hpp>
#include <string>

namespace denseformer {

// As CLI11's, but with descriptions wrapped to 100 columns, one blank line between groups, and the
// names of options as users type them.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool positional) const override;
  std::string make_option_name(const CLI::Option* option, bool positional) const override;
};

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_HELP_FORMAT_H_

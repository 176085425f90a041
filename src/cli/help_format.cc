#include "cli/help_format.h"

#include <utility>

#include "base/text.h"
#include "cli/describe.h"

namespace denseformer {
namespace {

constexpr size_t kIndent = 30, kColumns = 100;

// `text` in lines of kColumns that begin at column kIndent; the first line is begun by `head`.
std::string Wrapped(const std::string& head, const std::string& text) {
  std::string out, line = "  " + head;
  const std::string indent(kIndent, ' ');
  if (line.size() + 2 > kIndent) {
    out = line + "\n";
    line = indent;
  } else {
    line.resize(kIndent, ' ');
  }
  for (const std::string& word : Split(text, ' ')) {
    const bool first = line.size() == kIndent;
    if (!first && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = indent + word;
    } else {
      line += (first ? "" : " ") + word;
    }
  }
  return out + line + "\n";
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string text = Formatter::make_help(app, std::move(name), mode);
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool positional) const {
  return Wrapped(make_option_name(option, positional) + make_option_opts(option),
                 make_option_desc(option));
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool positional) const {
  return positional ? option->get_name(/*positional=*/true) : Join(NamesOf(*option), ", ");
}

}  // namespace denseformer

// denseformer man: the manual page as troff.
#include "base/text.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/output.h"

namespace denseformer {
namespace {

struct Options {};

// Safe in troff: no escapes, no requests at the start of a line, hyphens that can be copied.
std::string Troff(const std::string& text) {
  std::string out;
  bool start = true;
  for (char c : text) {
    if (start && (c == '.' || c == '\'')) out += "\\&";
    start = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string OptionEntry(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + Troff(name) + "\\fR");
  std::string head = Join(names, ", ");
  if (!option.positional && !option.choices.empty()) {
    head += " \\fI" + Troff(Join(option.choices, "|")) + "\\fR";
  } else if (!option.positional && !option.value.empty()) {
    head += " \\fI" + Troff(option.value) + "\\fR";
  }
  std::string text = fmt::format(".TP\n{}\n{}", head, Troff(option.help));
  if (!option.initial.empty()) text += fmt::format(" (default: {})", Troff(option.initial));
  return text + "\n";
}

// Lines that must stay as they are.
std::string Verbatim(const std::string& text) {
  return text.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", Troff(text));
}

std::string CommandSection(const CommandText& command) {
  std::string text;
  if (command.children.empty()) {
    text = fmt::format(".SS denseformer {}\n{}.\n", Troff(command.path), Troff(command.help));
    for (const OptionText& option : command.options) text += OptionEntry(option);
    text += Verbatim(command.footer);
  }
  for (const CommandText& child : command.children) text += CommandSection(child);
  return text;
}

std::string ManualPage(const CommandText& root) {
  std::string text = fmt::format(
      ".TH DENSEFORMER 1 \"\" \"denseformer {}\" \"User Commands\"\n"
      ".SH NAME\ndenseformer \\- train, evaluate and run DenseFormer language models on CPUs\n"
      ".SH SYNOPSIS\n.B denseformer\n.I COMMAND\n.RI [ OPTIONS ]\n.SH DESCRIPTION\n{}\n"
      ".SH COMMANDS\n",
      DENSEFORMER_VERSION, Troff(root.help));
  for (const CommandText& command : root.children) text += CommandSection(command);
  return text +
         ".SH EXIT STATUS\n0 on success, 2 for a wrong call, 130 when stopped by a signal, 1 for "
         "any "
         "other failure.\n"
         ".SH EXAMPLES\n" +
         Verbatim(root.footer);
}

}  // namespace

void AddMan(CLI::App& app, CommonOptions& common) {
  app.footer(
      "Installed packages have it in place: man denseformer.\n"
      "Examples:\n"
      "  denseformer man | man -l -");
  SetWork(app, common, std::make_shared<Options>(),
          [&app](const Options&) { WriteStdout(ManualPage(DescribeCommand(RootOf(app)))); });
}

}  // namespace denseformer

// denseformer completion: scripts that complete commands, options and values in bash and zsh.
//
// Both walk the words before the cursor to find the command, then offer the values of the option
// before the cursor, or the options and sub-commands of the command, or files.
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/output.h"

namespace denseformer {
namespace {

struct Options {
  std::string shell;
};

// In single quotes of a shell.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

template <class Visit>
void ForEachCommand(const CommandText& command, Visit&& visit) {
  visit(command);
  for (const CommandText& child : command.children) ForEachCommand(child, visit);
}

// Patterns of "command word" that name a command.
std::string CommandPatterns(const CommandText& root) {
  std::string patterns;
  ForEachCommand(root, [&](const CommandText& command) {
    if (command.path.empty()) return;
    const std::string before =
        command.path.find(' ') == std::string::npos ? " " : "";  // the path before it is empty
    patterns += (patterns.empty() ? "" : "|") + Quoted(before + command.path);
  });
  return patterns;
}

// One case per option whose value is one of a few: offer(choices).
template <class Offer>
std::string ValueCases(const CommandText& root, Offer&& offer) {
  std::string cases;
  ForEachCommand(root, [&](const CommandText& command) {
    for (const OptionText& option : command.options) {
      if (option.choices.empty() || option.positional) continue;
      std::string patterns;
      for (const std::string& name : option.names)
        patterns += (patterns.empty() ? "" : "|") + Quoted(command.path + ":" + name);
      cases += fmt::format("    {}) {} ;;\n", patterns, offer(option.choices));
    }
  });
  return cases;
}

// The words that may follow a command: sub-commands, values of positional arguments, options.
std::vector<std::pair<std::string, std::string>> WordsOf(const CommandText& command) {
  std::vector<std::pair<std::string, std::string>> words;
  for (const CommandText& child : command.children)
    words.emplace_back(child.path.substr(child.path.rfind(' ') + 1), child.help);
  for (const OptionText& option : command.options) {
    const std::vector<std::string>& names = option.positional ? option.choices : option.names;
    for (const std::string& name : names) words.emplace_back(name, option.help);
  }
  return words;
}

std::string Spaced(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string Bash(const CommandText& root) {
  std::string words;
  ForEachCommand(root, [&](const CommandText& command) {
    std::vector<std::string> names;
    for (const auto& [name, help] : WordsOf(command)) names.push_back(name);
    words += fmt::format("    {}) words={} ;;\n", Quoted(command.path), Quoted(Spaced(names)));
  });
  return fmt::format(
      "# Completion of denseformer for bash, written by 'denseformer completion bash'.\n"
      "_denseformer() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= "
      "words= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$command ${{COMP_WORDS[i]}}\" in\n"
      "      {}) command=\"${{command:+$command }}${{COMP_WORDS[i]}}\" ;;\n"
      "    esac\n  done\n"
      "  case \"$command:$before\" in\n{}  esac\n"
      "  case $command in\n{}  esac\n"
      "  # Without a match bash offers files.\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  [[ -n $current || -z $command ]] || COMPREPLY=()\n"
      "}}\n"
      "complete -o default -F _denseformer denseformer\n",
      CommandPatterns(root),
      ValueCases(root,
                 [](const std::vector<std::string>& choices) {
                   return fmt::format("COMPREPLY=($(compgen -W {} -- \"$current\")); return",
                                      Quoted(Spaced(choices)));
                 }),
      words);
}

std::string Zsh(const CommandText& root) {
  std::string words;
  ForEachCommand(root, [&](const CommandText& command) {
    words += fmt::format("    {}) candidates=(\n", Quoted(command.path));
    for (const auto& [name, help] : WordsOf(command)) {
      std::string safe;
      for (char c : help) safe += c == ':' ? "\\:" : std::string(1, c == '\n' ? ' ' : c);
      words += fmt::format("      {}\n", Quoted(name + ":" + safe));
    }
    words += "    ) ;;\n";
  });
  return fmt::format(
      "#compdef denseformer\n"
      "# Completion of denseformer for zsh, written by 'denseformer completion zsh'.\n"
      "_denseformer() {{\n"
      "  local command= word\n"
      "  local -a candidates\n"
      "  for word in ${{words[2,CURRENT-1]}}; do\n"
      "    case \"$command $word\" in\n"
      "      {}) command=\"${{command:+$command }}$word\" ;;\n"
      "    esac\n  done\n"
      "  case \"$command:${{words[CURRENT-1]}}\" in\n{}  esac\n"
      "  case $command in\n{}  esac\n"
      "  if [[ -z $command || $PREFIX == -* ]]; then\n"
      "    _describe 'word' candidates\n"
      "  else\n"
      "    _alternative 'words:word:(($candidates))' 'files:file:_files'\n"
      "  fi\n"
      "}}\n"
      "compdef _denseformer denseformer\n",
      CommandPatterns(root),
      ValueCases(root,
                 [](const std::vector<std::string>& choices) {
                   return fmt::format("compadd -- {}; return", Spaced(choices));
                 }),
      words);
}

}  // namespace

void AddCompletion(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  app.add_option("SHELL", options->shell, "bash or zsh")->required()->check(OneOf({"bash", "zsh"}));
  app.footer(
      "Installed packages have the scripts in place already.\n"
      "Examples:\n"
      "  source <(denseformer completion bash)\n"
      "  denseformer completion zsh > ~/.zfunc/_denseformer");
  SetWork(app, common, options, [&app](const Options& o) {
    const CommandText root = DescribeCommand(RootOf(app));
    WriteStdout(o.shell == "bash" ? Bash(root) : Zsh(root));
  });
}

}  // namespace denseformer

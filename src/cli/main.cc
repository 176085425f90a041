// The program: finds the command in the table, parses its options, runs it, and turns every failure
// into one line on stderr and an exit status (0 success, 2 a wrong call, 130 stopped by a signal, 1
// any other failure).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/output.h"
#include "cli/run_ranks.h"
#include "cli/wait_policy.h"

namespace denseformer {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  denseformer tokenizer train --vocab 2048 --output tokenizer.json novels/\n"
    "  denseformer data prepare --tokenizer tokenizer.json --output data novels/\n"
    "  denseformer train runs/a --preset tiny --dwa 4x5 --data data\n"
    "  denseformer eval runs/a\n"
    "  denseformer generate runs/a --prompt 'In the beginning'\n"
    "Each command has its own help: denseformer COMMAND --help";

void AddCommonOptions(CLI::App& app, CommonOptions& common) {
  app.add_flag("--json", common.json, "Print the result as JSON")->group("Common options");
  app.add_flag("--quiet", common.quiet, "No progress and no informational messages on stderr")
      ->group("Common options");
  app.add_option("--threads", common.threads, "Threads to use; default: all cores it may use")
      ->check(WholeNumber(1, 1024))
      ->group("Common options");
}

// The common options belong to each command that does something, so that its --help shows them.
void AddCommonOptionsToLeaves(CLI::App& app, CommonOptions& common) {
  const std::vector<CLI::App*> children = app.get_subcommands([](CLI::App*) { return true; });
  if (children.empty()) AddCommonOptions(app, common);
  for (CLI::App* child : children) AddCommonOptionsToLeaves(*child, common);
}

// The command that the parser had reached.
const CLI::App* DeepestParsed(const CLI::App& app) {
  const CLI::App* deepest = &app;
  while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().back();
  return deepest;
}

// "denseformer data info"; "" for no command.
std::string FullName(const CLI::App* app) {
  std::string name;
  for (; app != nullptr; app = app->get_parent()) {
    name = name.empty() ? app->get_name() : app->get_name() + " " + name;
  }
  return name;
}

std::string UnknownOption(const CLI::App& app, std::string option) {
  option = option.substr(0, option.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* candidate : app.get_options()) {
    for (const std::string& name : candidate->get_lnames()) known.push_back("--" + name);
  }
  if (std::find(known.begin(), known.end(), option) != known.end()) {
    return fmt::format("unexpected argument '{}' (after '--' nothing is an option)", option);
  }
  return fmt::format("unknown option '{}'{}", option, DidYouMean(option, known));
}

// A value that is no number; the parser says "Could not convert: --seed = x".
std::string NotANumber(const CLI::App& app, const std::string& message) {
  const size_t name = message.find("--"), equals = message.find(" = ");
  if (name == std::string::npos || equals == std::string::npos || name > equals) return message;
  const std::string option = message.substr(name, equals - name);
  const CLI::Option* found = app.get_option_no_throw(option);
  const bool whole = found != nullptr && found->get_type_name().find("INT") != std::string::npos;
  return fmt::format("{}: got '{}', expected a {}number", option, message.substr(equals + 3),
                     whole ? "whole " : "");
}

// What is wrong with the call, in one line.
std::string Explain(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* app = DeepestParsed(root);
  const std::vector<const CLI::App*> children =
      app->get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string> rest = root.remaining(/*recurse=*/true);
  std::string message = error.what();
  if (error.get_name() == "ConversionError") message = NotANumber(*app, message);
  if (rest.empty() && !children.empty()) message = "expected a command";
  if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
  if (!rest.empty()) {
    const std::string& first = rest[0];
    std::vector<std::string> names;
    for (const CLI::App* child : children) names.push_back(child->get_name());
    if (first.size() > 1 && first[0] == '-') {
      message = UnknownOption(*app, first);
    } else if (!children.empty()) {
      message = fmt::format("unknown command '{}'{}", first, DidYouMean(first, names));
    } else {
      message = fmt::format("unexpected argument '{}'", first);
    }
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fmt::format("{}; see '{} --help'", message, FullName(app));
}

void Run(int argc, char** argv) {
  CLI::App app("Train, evaluate and run DenseFormer language models on CPUs.", "denseformer");
  app.set_version_flag("--version", "denseformer " DENSEFORMER_VERSION);
  app.set_help_flag("--help,-h", "Print this help and exit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.footer(kFooter);
  CommonOptions common;
  for (const Command& command : kCommands) {
    CLI::App& added = *app.add_subcommand(command.name, command.summary);
    // For commands that only have sub-commands; the others say more.
    added.footer(
        fmt::format("Each has its own help: denseformer {} SUBCOMMAND --help", command.name));
    command.add(added, common);
  }
  AddCommonOptionsToLeaves(app, common);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    WriteStdout(DeepestParsed(app)->help(FullName(DeepestParsed(app)->get_parent())));
    return;
  } catch (const CLI::CallForVersion& version) {
    Print("{}\n", version.what());
    return;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, Explain(app, error));
  }
  if (common.threads > 0) SetNumThreads(common.threads);
  if (common.quiet) {
    SetProgressEnabled(false);
    SetLogLevel(LogLevel::kWarning);
  }
  common.run();
}

}  // namespace
}  // namespace denseformer

int main(int argc, char** argv) {
  using namespace denseformer;
  UseShortSpin(argv);
  // A closed pipe must come back as an error of write(), to be reported like any other.
  std::signal(SIGPIPE, SIG_IGN);
  // So must a limit on the size of files (ulimit -f).
  std::signal(SIGXFSZ, SIG_IGN);
  int status = 0;
  try {
    Run(argc, argv);
    FlushStdout();
  } catch (const Error& error) {
    WaitForFirstRank();
    LogError("{}", error.what());
    status = ExitStatus(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    // A directory that cannot be listed or made.
    LogError("{}: {}", error.path1().empty() ? "file system" : error.path1().string(),
             error.code().message());
    status = 1;
  } catch (const std::bad_alloc&) {
    LogError("out of memory");
    status = 1;
  } catch (const std::exception& error) {
    LogError("unexpected: {} (this is a bug, please report it)", error.what());
    status = 1;
  }
  return status;
}

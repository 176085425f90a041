// What a command of the program is, and what all commands share.
//
// Adding a command: one file with its Add function, and one line in the table of commands.h.
#ifndef DENSEFORMER_CLI_COMMAND_H_
#define DENSEFORMER_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace denseformer {

// The options that every command has, and the work that the call asks for.
struct CommonOptions {
  bool json = false;   // the result on stdout as one JSON object
  bool quiet = false;  // no progress, no notes on stderr
  int threads = 0;     // 0: as NumThreads() finds it
  std::function<void()> run;
};

struct Command {
  const char* name;
  const char* summary;
  // Defines the options (and sub-commands, each with its own) of `app`. Both arguments outlive the
  // call of the command. The common options are added by main.
  void (*add)(CLI::App& app, CommonOptions& common);
};

// Lets `app`, when it is the command called, do `work(options)`. `options` are the values that the
// parser fills, so they live on the heap, shared between the parser and the work.
template <class Options, class F>
void SetWork(CLI::App& app, CommonOptions& common, std::shared_ptr<Options> options, F work) {
  app.callback([&common, options = std::move(options), work = std::move(work)] {
    common.run = [options, work] { work(*options); };
  });
}

// The option for where a command writes: the same names in every command.
inline CLI::Option* AddOutput(CLI::App& app, std::string& path, const std::string& help) {
  return app.add_option("-o,--output,--out", path, help);
}

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_COMMAND_H_

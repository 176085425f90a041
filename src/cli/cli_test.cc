// The frame of the program: help, version, wrong calls, exit status, output that cannot be written.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/testing.h"
#include "base/text.h"
#include "cli/run_program.h"

namespace denseformer {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(CliTest, HelpListsCommands) {
  for (const char* flag : {"--help", "-h"}) {
    const ProgramResult result = RunProgram({flag});
    EXPECT_EQ(result.status, 0);
    EXPECT_TRUE(Contains(result.out, "Usage: denseformer"));
    EXPECT_TRUE(Contains(result.out, "data"));
    EXPECT_EQ(result.err, "");
  }
}

TEST(CliTest, CommandHelpHasExamplesAndCommonOptions) {
  const ProgramResult result = RunProgram({"data", "info", "--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(Contains(result.out, "Usage: denseformer data info"));
  EXPECT_TRUE(Contains(result.out, "Examples:"));
  EXPECT_TRUE(Contains(result.out, "--json"));
  EXPECT_TRUE(Contains(result.out, "--threads"));
}

TEST(CliTest, EveryCommandThatWritesTakesTheSameOption) {
  const std::vector<std::vector<std::string>> commands = {{"tokenizer", "train"},
                                                          {"tokenizer", "import"},
                                                          {"data", "prepare"},
                                                          {"analyze"},
                                                          {"report"},
                                                          {"search"},
                                                          {"import"},
                                                          {"export"}};
  for (std::vector<std::string> call : commands) {
    call.push_back("--help");
    EXPECT_TRUE(Contains(RunProgram(call).out, "  -o, --output TEXT")) << call[0];
  }
}

TEST(CliTest, HelpIsWrappedAndNamesOptionsAsTheyAreTyped) {
  const std::string help = RunProgram({"train", "--help"}).out;
  EXPECT_TRUE(Contains(help, "\n  --recompute, --no-recompute\n")) << help;
  EXPECT_FALSE(Contains(help, "{false}")) << help;
  EXPECT_FALSE(Contains(help, "\n\n\n")) << help;
  size_t longest = 0;
  for (const std::string& line : Split(help, '\n')) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 100u);
}

TEST(CliTest, Version) {
  const ProgramResult result = RunProgram({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.rfind("denseformer ", 0), 0u);
  EXPECT_EQ(Lines(result.out), 1);
}

// OpenMP itself prints its settings where OMP_DISPLAY_ENV asks for it.
TEST(CliTest, ThreadsSpinForAShortTimeUnlessTheUserSaysOtherwise) {
  const auto settings = [](const std::string& prefix) {
    return RunProgram(
               {"--version"}, "",
               "unset OMP_WAIT_POLICY GOMP_SPINCOUNT; export OMP_DISPLAY_ENV=verbose; " + prefix)
        .err;
  };
  EXPECT_TRUE(Contains(settings(""), "GOMP_SPINCOUNT = '2000'"));
  const std::string chosen = settings("export GOMP_SPINCOUNT=7; ");
  EXPECT_TRUE(Contains(chosen, "GOMP_SPINCOUNT = '7'")) << chosen;
  EXPECT_FALSE(Contains(chosen, "GOMP_SPINCOUNT = '2000'")) << chosen;
  const std::string passive = settings("export OMP_WAIT_POLICY=passive; ");
  EXPECT_FALSE(Contains(passive, "GOMP_SPINCOUNT = '2000'")) << passive;
}

TEST(CliTest, WrongCallsGetOneLineAndStatus2) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "expected a command; see 'denseformer --help'"},
      {{"dta"}, "unknown command 'dta' (did you mean 'data'?); see 'denseformer --help'"},
      {{"data", "inof"}, "unknown command 'inof' (did you mean 'info'?)"},
      {{"data"}, "expected a command; see 'denseformer data --help'"},
      {{"data", "info", "x", "--type", "int8"}, "--type: got 'int8', expected uint16, uint32"},
      {{"completion", "fish"}, "SHELL: got 'fish', expected bash, zsh; see"},
      {{"data", "info", "--vocb", "3"}, "unknown option '--vocb' (did you mean '--vocab'?)"},
      {{"data", "info", "x", "--vocb=3"}, "unknown option '--vocb' (did you mean '--vocab'?)"},
      {{"data", "info"}, "PATH is required"},
      {{"train", "--", "--foo", "--preset", "test"},
       "unexpected argument '--preset' (after '--' nothing is an option)"},
      {{"data", "info", "x", "--vocab", "3x"}, "--vocab"},
      {{"data", "info", "x", "--threads", "0"}, "--threads"},
  };
  for (const auto& [arguments, message] : cases) {
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(Lines(result.err), 1) << result.err;
    EXPECT_TRUE(Contains(result.err, message)) << result.err;
  }
}

TEST(CliTest, FailureGetsStatus1) {
  const ProgramResult result = RunProgram({"data", "info", "/no/such/file"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "error: cannot open /no/such/file: No such file or directory\n");
}

// What works for long says at its start that its result would have no place.
TEST(CliTest, OutputIsCheckedBeforeTheWork) {
  const TemporaryDirectory scratch;
  const std::string missing = scratch / "missing/out", ledger = scratch / "ledger";
  WriteFileAtomic(scratch / "sweep.toml", "title = \"a\"\n[[row]]\nname = \"b\"\n");
  const std::vector<std::string> calls[] = {
      {"tokenizer", "train", "--bytes", "-o", missing},
      {"report", scratch / "no-run", "-o", missing},
      {"bench", "gemm", "--preset", "no-preset", "--svg", missing},
      {"cluster", "--preset", "no-preset", "--svg", missing},
      {"bench", "serve", scratch / "no-run", "--svg", missing},
      {"sweep", scratch / "sweep.toml", "--ledger", missing},
      {"sweep", scratch / "sweep.toml", "--ledger", ledger, "--html", missing},
  };
  for (const std::vector<std::string>& call : calls) {
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 1) << call[0];
    EXPECT_EQ(result.err, "error: cannot write " + missing + ": there is no directory " +
                              scratch.path() + "/missing\n");
  }
}

TEST(CliTest, ADirectoryThatCannotBeMadeIsNoBug) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "sweep.toml",
                  "title = \"a\"\ndata = \"d\"\nseeds = [1]\n[options]\npreset = "
                  "\"test\"\n[[row]]\nname = \"b\"\n");
  const ProgramResult result =
      RunProgram({"sweep", scratch / "sweep.toml", "--ledger", scratch / "ledger", "--data",
                  "d=" + scratch.path(), "--runs", scratch / "sweep.toml/runs"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "error: cannot make the directory " + scratch.path() +
                            "/sweep.toml/runs: Not a directory\n");
}

TEST(CliTest, FullDiskOnStdoutIsAnError) {
  const ProgramResult result = RunProgram({"--help"}, "", "", ">/dev/full");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "error: cannot write to standard output: No space left on device\n");
}

TEST(CliTest, ClosedPipeIsAnError) {
  // The reader of the pipe has gone before the program starts.
  const TemporaryDirectory scratch;
  const std::string fifo = scratch / "fifo";
  const ProgramResult result =
      RunProgram({"--help"}, "",
                 "mkfifo " + fifo + "; (exec <" + fifo + ") & exec 3>" + fifo + "; wait;", ">&3");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "error: cannot write to standard output: Broken pipe\n");
}

}  // namespace
}  // namespace denseformer

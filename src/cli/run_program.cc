#include "cli/run_program.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/testing.h"

namespace denseformer {
namespace {

std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

const char* ProgramPath() { return DENSEFORMER_PROGRAM; }

ProgramResult RunProgram(const std::vector<std::string>& arguments, const std::string& input,
                         const std::string& shell_prefix, const std::string& shell_suffix) {
  const TemporaryDirectory scratch;
  OutputFile in(scratch / "in");
  in.Write(input);
  in.Close();
  std::string line = shell_prefix + " " + Quoted(ProgramPath());
  for (const std::string& argument : arguments) line += " " + Quoted(argument);
  line += " <" + Quoted(scratch / "in") + " 2>" + Quoted(scratch / "err") + " >" +
          Quoted(scratch / "out") + " " + shell_suffix;
  const pid_t child = fork();
  if (child < 0) ThrowErrno(errno, "fork");
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  int code = 0;
  rusage usage{};
  if (wait4(child, &code, 0, &usage) != child) ThrowErrno(errno, "wait4");
  ProgramResult result;
  result.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  result.status = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
  result.out = ReadFile(scratch / "out");
  result.err = ReadFile(scratch / "err");
  return result;
}

}  // namespace denseformer

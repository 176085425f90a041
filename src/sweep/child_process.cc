#include "sweep/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace denseformer {
namespace {

ExitState Decode(int code) {
  ExitState state;
  if (WIFSIGNALED(code)) state.signal = WTERMSIG(code);
  if (WIFEXITED(code)) state.status = WEXITSTATUS(code);
  return state;
}

// Only calls that are safe between fork and exec.
[[noreturn]] void BecomeProgram(char* const* words, int log, int nice, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The parent may have died before the call above.
  if (getppid() != parent) _exit(126);
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + nice);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(words[0], words);
  _exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
                           const std::string& log, int nice) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) ThrowErrno(errno, "sweep: cannot write {}", log);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) BecomeProgram(words.data(), fd, nice, parent);
  const int error = errno;
  close(fd);
  if (pid_ < 0) ThrowErrno(error, "sweep: cannot start a process");
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || ended_) return;
  Stop();
  int code = 0;
  while (waitpid(pid_, &code, 0) < 0 && errno == EINTR) {
  }
}

std::optional<ExitState> ChildProcess::Poll() {
  if (ended_) return ended_;
  int code = 0;
  const pid_t found = waitpid(pid_, &code, WNOHANG);
  if (found == pid_) ended_ = Decode(code);
  return ended_;
}

void ChildProcess::Stop() {
  if (!ended_) kill(pid_, SIGTERM);
}

}  // namespace denseformer

// A process of this program, started in the background.
#ifndef DENSEFORMER_SWEEP_CHILD_PROCESS_H_
#define DENSEFORMER_SWEEP_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace denseformer {

struct ExitState {
  int status = 0;  // exit status, where no signal ended it
  int signal = 0;
};

// Runs `program` with `arguments`, its output and errors appended to the file `log`, `nice` steps
// nicer. It gets SIGTERM when this process dies. Destruction asks a process that still runs to
// stop, and waits for it.
class ChildProcess {
 public:
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
               const std::string& log, int nice);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // How it ended; nothing while it runs. Does not wait.
  std::optional<ExitState> Poll();
  void Stop();  // SIGTERM

 private:
  pid_t pid_ = -1;
  std::optional<ExitState> ended_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_CHILD_PROCESS_H_

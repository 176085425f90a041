// Being asked to stop: SIGINT (Ctrl-C), SIGTERM, SIGHUP (a lost connection) and SIGUSR1 (which
// mpirun passes on to its processes, and batch systems send ahead of the end) set a flag that long
// work looks at between two pieces, so that it can save or clean up first. A second signal ends the
// process at once.
#ifndef DENSEFORMER_BASE_SIGNAL_H_
#define DENSEFORMER_BASE_SIGNAL_H_

#include <csignal>

namespace denseformer {

inline constexpr int kInterruptSignals = 4;

// Installs the handlers; calling it again changes nothing.
void CatchInterrupts();

// Whether a signal has come since CatchInterrupts().
bool Interrupted();

// Throws kInterrupted where a signal has come; `what` names the work that ends ("data prepare").
void ThrowIfInterrupted(const char* what);

// While it lives, signals set the flag; then the former handlers are back and the flag is clear.
// For work that a person may end without ending the program.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_[kInterruptSignals];
};

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_SIGNAL_H_

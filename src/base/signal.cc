#include "base/signal.h"

#include "base/error.h"

namespace denseformer {
namespace {

constexpr int kSignals[kInterruptSignals] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

volatile std::sig_atomic_t interrupted = 0;

extern "C" void OnInterrupt(int number) {
  interrupted = 1;
  std::signal(number, SIG_DFL);
}

}  // namespace

void CatchInterrupts() {
  for (const int number : kSignals) {
    struct sigaction action {};
    action.sa_handler = OnInterrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    // A signal that the parent chose to ignore (nohup and the like) stays ignored.
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

bool Interrupted() { return interrupted != 0; }

void ThrowIfInterrupted(const char* what) {
  if (Interrupted()) Throw(ErrorCode::kInterrupted, "{}: stopped by a signal", what);
}

InterruptScope::InterruptScope() {
  for (int i = 0; i < kInterruptSignals; ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  CatchInterrupts();
}

InterruptScope::~InterruptScope() {
  for (int i = 0; i < kInterruptSignals; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  interrupted = 0;
}

}  // namespace denseformer

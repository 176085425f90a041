#include "base/signal.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error_testing.h"

namespace denseformer {
namespace {

// The wait status of a child process that runs `call` and then ends with 0.
template <class F>
int InChild(F call) {
  const pid_t child = fork();
  if (child < 0) ThrowErrno(errno, "fork");
  if (child == 0) {
    call();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void EndUnless(bool condition, int status) {
  if (!condition) _exit(status);
}

TEST(Signal, AScopeGivesTheFormerHandlersBack) {
  const int status = InChild([] {
    for (int round = 0; round < 3; ++round) {
      const InterruptScope scope;
      EndUnless(!Interrupted(), 1);
      raise(SIGINT);
      EndUnless(Interrupted(), 2);
    }
    EndUnless(!Interrupted(), 3);
    raise(SIGINT);
  });
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
}

TEST(Signal, TheFirstSignalSetsAFlag) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = InChild([&] {
      CatchInterrupts();
      EndUnless(!Interrupted(), 1);
      ThrowIfInterrupted("work");
      raise(number);
      EndUnless(Interrupted(), 2);
      try {
        ThrowIfInterrupted("data prepare");
      } catch (const Error& error) {
        EndUnless(error.code() == ErrorCode::kInterrupted, 3);
        EndUnless(std::string(error.what()) == "data prepare: stopped by a signal", 4);
        return;
      }
      _exit(5);
    });
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST(Signal, TheSecondSignalEndsTheProcess) {
  const int status = InChild([] {
    CatchInterrupts();
    raise(SIGTERM);
    raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(Signal, WhatTheParentIgnoresStaysIgnored) {
  const int status = InChild([] {
    signal(SIGINT, SIG_IGN);
    CatchInterrupts();
    raise(SIGINT);
    raise(SIGINT);
    EndUnless(!Interrupted(), 1);
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace denseformer

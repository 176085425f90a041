// What a piece of code writes to stderr, where that is a terminal and where it is not.
#ifndef DENSEFORMER_BASE_STDERR_TESTING_H_
#define DENSEFORMER_BASE_STDERR_TESTING_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>

#include "base/error.h"

namespace denseformer {

// The two ends of a pseudo-terminal with `columns`, or with columns = 0 those of a pipe.
inline void OpenStderr(int columns, int& reader, int& writer) {
  if (columns == 0) {
    int ends[2];
    if (pipe(ends) != 0) ThrowErrno(errno, "pipe");
    reader = ends[0];
    writer = ends[1];
    return;
  }
  reader = posix_openpt(O_RDWR | O_NOCTTY);
  if (reader < 0 || grantpt(reader) != 0 || unlockpt(reader) != 0) ThrowErrno(errno, "pty");
  writer = open(ptsname(reader), O_RDWR | O_NOCTTY);
  if (writer < 0) ThrowErrno(errno, "pty");
  termios settings;
  tcgetattr(writer, &settings);
  cfmakeraw(&settings);
  tcsetattr(writer, TCSANOW, &settings);
  winsize size{};
  size.ws_row = 25;
  size.ws_col = static_cast<unsigned short>(columns);
  ioctl(writer, TIOCSWINSZ, &size);
}

// Runs `call` in a child process and returns what it wrote to stderr: a terminal of `columns`
// columns, or a pipe where that is 0. The child must end by itself.
template <class F>
std::string CaptureStderr(int columns, F call) {
  int reader, writer;
  OpenStderr(columns, reader, writer);
  const pid_t child = fork();
  if (child < 0) ThrowErrno(errno, "fork");
  if (child == 0) {
    close(reader);
    dup2(writer, STDERR_FILENO);
    call();
    _exit(0);
  }
  close(writer);
  std::string output;
  char buffer[4096];
  ssize_t got;
  // The terminal gives EIO after its last writer is gone.
  while ((got = read(reader, buffer, sizeof(buffer))) > 0) output.append(buffer, got);
  close(reader);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  return output;
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_STDERR_TESTING_H_

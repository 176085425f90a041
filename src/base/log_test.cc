#include "base/log.h"

#include <string>

#include "base/stderr_testing.h"

namespace denseformer {
namespace {

TEST(Log, SaysLevelAndMessage) {
  EXPECT_EQ(CaptureStderr(/*columns=*/0,
                          [] {
                            LogMessage(LogLevel::kDebug, "hidden by default");
                            LogInfo("read {} tokens", 5);
                            LogWarning("{}% {{}} of it", 50);
                            LogError("bad");
                          }),
            "info: read 5 tokens\nwarning: 50% {} of it\nerror: bad\n");
}

TEST(Log, LevelDropsWhatIsBelow) {
  EXPECT_EQ(CaptureStderr(/*columns=*/0,
                          [] {
                            SetLogLevel(LogLevel::kWarning);
                            LogInfo("hidden");
                            LogWarning("shown");
                            SetLogLevel(LogLevel::kDebug);
                            LogMessage(LogLevel::kDebug, "now shown");
                          }),
            "warning: shown\ndebug: now shown\n");
}

TEST(Log, ColorsOnlyOnATerminal) {
  setenv("TERM", "xterm", 1);
  const auto warn = [] { LogWarning("careful"); };
  EXPECT_NE(CaptureStderr(/*columns=*/80, warn).find("\x1b["), std::string::npos);
  EXPECT_EQ(CaptureStderr(/*columns=*/0, warn).find("\x1b["), std::string::npos);
}

}  // namespace
}  // namespace denseformer

#include "base/progress.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/stderr_testing.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr char kClear[] = "\r\x1b[K";

void Wait() { std::this_thread::sleep_for(std::chrono::milliseconds(120)); }

int Occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Whether the text is `begin`, anything, and `end`.
bool Matches(const std::string& text, const std::string& begin, const std::string& end) {
  return text.size() >= begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
}

// Columns that a line takes: characters of UTF-8.
int Columns(const std::string& line) {
  return static_cast<int>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

TEST(Progress, PlainLinesWithoutATerminal) {
  const std::string output = CaptureStderr(/*columns=*/0, [] {
    Progress progress("train", "steps", 20);
    for (int i = 0; i <= 10; ++i) progress.Update(i, "loss " + std::to_string(i));
  });
  // Too short a time for a line on the way: only the last state, with the last note.
  EXPECT_TRUE(Matches(output, "train:  50% 10/20 steps, ", " steps/s, 0:00, loss 10\n")) << output;
}

TEST(Progress, NoLastStateWhereAnExceptionEndsTheWork) {
  const auto fail = [] {
    try {
      Progress progress("train", "steps", 20);
      Wait();
      progress.Update(10);
      throw 1;
    } catch (int) {
    }
  };
  EXPECT_EQ(CaptureStderr(/*columns=*/0, fail), "");
  const std::string output = CaptureStderr(/*columns=*/80, fail);
  EXPECT_EQ(output.find('\n'), std::string::npos) << output;
  EXPECT_TRUE(output.ends_with(kClear)) << output;
}

TEST(Progress, BarOnATerminal) {
  const std::string output = CaptureStderr(/*columns=*/80, [] {
    Progress progress("train", "steps", 4);
    for (int i = 1; i <= 4; ++i) {
      Wait();
      progress.Update(i, "loss 3.21");
    }
  });
  EXPECT_EQ(output.rfind(kClear, 0), 0u) << output;
  EXPECT_EQ(Occurrences(output, kClear), 5) << output;
  EXPECT_EQ(Occurrences(output, "\n"), 1) << output;
  EXPECT_EQ(output.back(), '\n');
  EXPECT_NE(output.find(" 25% 1/4 steps, "), std::string::npos) << output;
  EXPECT_NE(output.find(" left, loss 3.21"), std::string::npos) << output;
  EXPECT_NE(output.find("100% 4/4 steps"), std::string::npos) << output;
  EXPECT_NE(output.find("█"), std::string::npos) << output;
}

TEST(Progress, NeverWiderThanTheTerminal) {
  for (int columns : {5, 20, 40, 61, 200}) {
    const std::string output = CaptureStderr(columns, [] {
      Progress progress("prepare größe", "MB", 1000);
      Wait();
      progress.Update(500, "a rather long note with ümläute");
    });
    for (std::string line : Split(output, '\r')) {
      if (line.rfind("\x1b[K", 0) == 0) line.erase(0, 3);
      if (!line.empty() && line.back() == '\n') line.pop_back();
      EXPECT_LT(Columns(line), columns) << line;
    }
  }
}

TEST(Progress, DrawsAtMostTenTimesASecond) {
  const std::string output = CaptureStderr(/*columns=*/80, [] {
    Progress progress("x", "lines", 0);
    for (int i = 0; i < 1000; ++i) progress.Update(i);
  });
  EXPECT_LT(Occurrences(output, kClear), 20);
  EXPECT_NE(output.find("999 lines"), std::string::npos) << output;
  EXPECT_EQ(output.find('%'), std::string::npos) << "no share where the total is unknown";
}

TEST(Progress, AResumedCountSpeaksOfThisProcessOnly) {
  const std::string output = CaptureStderr(
      /*columns=*/0, [] { Progress progress("train", "steps", 2000, /*start=*/1000); });
  EXPECT_EQ(output, "train:  50% 1,000/2,000 steps, 0 steps/s, 0:00\n");
}

TEST(Progress, LargeCountsAreShort) {
  const std::string output = CaptureStderr(
      /*columns=*/0, [] { Progress progress("read", "lines", 2e9, /*start=*/1e7); });
  EXPECT_EQ(output, "read:   0% 10.00 M/2.00 G lines, 0 lines/s, 0:00\n");
}

TEST(Progress, MoreThanTheTotal) {
  const std::string output = CaptureStderr(/*columns=*/80, [] {
    Progress progress("x", "MB", 10);
    Wait();
    progress.Update(15);
  });
  EXPECT_NE(output.find("100% 15/10 MB"), std::string::npos) << output;
  EXPECT_NE(output.find("0:00 left"), std::string::npos) << output;
}

TEST(Progress, QuietSaysNothing) {
  EXPECT_EQ(CaptureStderr(/*columns=*/80,
                          [] {
                            SetProgressEnabled(false);
                            Progress progress("x", "steps", 10);
                            Wait();
                            progress.Update(5);
                            progress.Finish();
                          }),
            "");
}

TEST(Progress, FinishEndsTheLineOnce) {
  const std::string output = CaptureStderr(/*columns=*/80, [] {
    Progress progress("x", "steps", 10);
    progress.Update(10);
    progress.Finish();
    progress.Finish();
  });
  EXPECT_EQ(Occurrences(output, "\n"), 1) << output;
}

TEST(Progress, AMessageTakesTheBarAway) {
  const std::string output = CaptureStderr(/*columns=*/80, [] {
    Progress progress("x", "steps", 10);
    Wait();
    progress.Update(5);
    LogWarning("look");
    SetLogLevel(LogLevel::kError);
    Wait();
    progress.Update(6);
    LogWarning("dropped");
  });
  const size_t message = output.find("look");
  ASSERT_NE(message, std::string::npos) << output;
  EXPECT_EQ(Occurrences(output.substr(0, message), kClear), 2) << output;
  // A message that is dropped leaves the bar alone.
  EXPECT_EQ(Occurrences(output, kClear), 4) << output;
}

TEST(Progress, AFullStderrDoesNotEndTheWork) {
  EXPECT_EQ(CaptureStderr(/*columns=*/0,
                          [] {
                            const int full = open("/dev/full", O_WRONLY);
                            dup2(full, STDERR_FILENO);
                            Progress progress("x", "steps", 10);
                            progress.Update(10);
                          }),
            "");
}

}  // namespace
}  // namespace denseformer

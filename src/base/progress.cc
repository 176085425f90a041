#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string_view>

#include "base/text.h"

namespace denseformer {
namespace {

std::atomic<bool> enabled{true};
std::atomic<bool> line_open{false};

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(10);

bool OnTerminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// The number of characters of UTF-8 text.
int Characters(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first `most` characters of UTF-8 text.
std::string_view FirstCharacters(std::string_view text, int most) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && most-- <= 0) break;
  }
  return text.substr(0, end);
}

// A count of steps, lines or MB: in full as long as that is easy to read.
std::string CountText(double value) {
  constexpr double kLongest = 1e7;
  return value >= 999.5 && value < kLongest ? WithCommas(std::llround(value)) : HumanCount(value);
}

// A stderr that is closed or full must not end the work, so failures are ignored here.
void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void SetProgressEnabled(bool on) { enabled = on; }

void ClearProgressLine() {
  if (line_open.exchange(false)) Print("\r\x1b[K");
}

Progress::Progress(std::string title, std::string unit, double total, double start)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      start_(start),
      done_(start),
      begin_(Clock::now()),
      drawn_(begin_),
      exceptions_(std::uncaught_exceptions()) {}

Progress::~Progress() {
  if (std::uncaught_exceptions() > exceptions_) {
    ClearProgressLine();
  } else {
    Finish();
  }
}

void Progress::Update(double done, const std::string& note) {
  done_ = done;
  if (!enabled) return;
  note_ = note;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < (OnTerminal() ? Clock::duration(kRedraw) : Clock::duration(kPlainLine)))
    return;
  Draw(now, /*last=*/false);
}

void Progress::Finish() {
  if (finished_ || !enabled) return;
  finished_ = true;
  Draw(Clock::now(), /*last=*/true);
}

void Progress::Draw(Clock::time_point now, bool last) {
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double rate = seconds > 0 ? (done_ - start_) / seconds : 0;
  const double fraction = total_ > 0 ? std::clamp(done_ / total_, 0.0, 1.0) : 0;
  std::string text;
  if (unit_ == "%") {
    text = fmt::format("{:3.0f}%, {}", 100 * fraction, HumanDuration(seconds));
  } else if (total_ > 0) {
    text = fmt::format("{:3.0f}% {}/{} {}", 100 * fraction, CountText(done_), CountText(total_),
                       unit_);
  } else {
    text = fmt::format("{} {}", CountText(done_), unit_);
  }
  if (unit_ != "%")
    text += fmt::format(", {} {}/s, {}", CountText(rate), unit_, HumanDuration(seconds));
  if (total_ > 0 && !last && rate > 0) {
    text += fmt::format(", {} left", HumanDuration(std::max(0.0, total_ - done_) / rate));
  }
  if (!note_.empty()) text += ", " + note_;
  if (!OnTerminal()) {
    Print(fmt::format("{}: {}\n", title_, text));
    return;
  }
  // A line that the terminal would wrap could not be drawn over again.
  const int columns = TerminalWidth() - 1;
  const int room = columns - Characters(title_) - Characters(text) - 2;
  std::string bar;
  if (total_ > 0 && room >= 8) {
    const int width = std::min(room, 30), full = static_cast<int>(fraction * width);
    for (int i = 0; i < width; ++i) bar += i < full ? "█" : "·";
    bar += " ";
  }
  const std::string line = fmt::format("{} {}{}", title_, bar, text);
  Print(fmt::format("\r\x1b[K{}{}", FirstCharacters(line, columns), last ? "\n" : ""));
  line_open = !last;
}

}  // namespace denseformer

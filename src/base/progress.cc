#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

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

std::string Number(double value) {
  return value < 1000 ? fmt::format("{:.3g}", value) : HumanCount(value);
}

}  // namespace

void SetProgressEnabled(bool on) { enabled = on; }

void ClearProgressLine() {
  if (line_open.exchange(false)) std::fputs("\r\x1b[K", stderr);
}

Progress::Progress(std::string title, std::string unit, double total, double start)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      start_(start),
      done_(start),
      begin_(Clock::now()),
      drawn_(begin_) {}

Progress::~Progress() { Finish(); }

void Progress::Update(double done, const std::string& note) {
  done_ = done;
  if (!enabled) return;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < (OnTerminal() ? Clock::duration(kRedraw) : Clock::duration(kPlainLine)))
    return;
  note_ = note;
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
  if (total_ > 0) {
    text = fmt::format("{:3.0f}% {}/{} {}", 100 * fraction, Number(done_), Number(total_), unit_);
  } else {
    text = fmt::format("{} {}", Number(done_), unit_);
  }
  text += fmt::format(", {}/s, {}", Number(rate), HumanDuration(seconds));
  if (total_ > 0 && !last && rate > 0) {
    text += fmt::format(", {} left", HumanDuration((total_ - done_) / rate));
  }
  if (!note_.empty()) text += ", " + note_;
  if (!OnTerminal()) {
    fmt::print(stderr, "{}: {}\n", title_, text);
    return;
  }
  const int room = TerminalWidth() - static_cast<int>(title_.size() + text.size()) - 5;
  std::string bar;
  if (total_ > 0 && room >= 8) {
    const int width = std::min(room, 30), full = static_cast<int>(fraction * width);
    for (int i = 0; i < width; ++i) bar += i < full ? "█" : "·";
    bar += " ";
  }
  fmt::print(stderr, "\r\x1b[K{} {}{}{}", title_, bar, text, last ? "\n" : "");
  std::fflush(stderr);
  line_open = !last;
}

}  // namespace denseformer

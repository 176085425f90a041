#include "base/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/printable.h"

namespace denseformer {
namespace {

template <class T>
T ParseNumber(std::string_view what, std::string_view text, T low, T high, const char* kind) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (text.empty() || status == std::errc::invalid_argument || stop != end) {
    Throw(ErrorCode::kUsage, "{}: got '{}', expected {}", what, Printable(text), kind);
  }
  const bool finite = std::is_integral_v<T> || std::isfinite(static_cast<double>(value));
  if (status == std::errc::result_out_of_range || !finite || value < low || value > high) {
    Throw(ErrorCode::kUsage, "{}: got {}, expected {} from {} to {}", what, text, kind, low, high);
  }
  return value;
}

// The number of characters to insert, delete, replace or swap with their neighbor.
int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1), before(b.size() + 1), before_that(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_that, before);
    std::swap(before, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_that[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// The length of what two keys share up to a period: "train." of train.steps and train.seed.
size_t SharedSection(std::string_view a, std::string_view b) {
  const size_t same = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const size_t dot = a.substr(0, same).rfind('.');
  return dot == std::string_view::npos ? 0 : dot + 1;
}

std::string Scaled(double value, double base, const char* const* units, int count) {
  int unit = 0;
  // What would be printed as a whole `base` belongs to the next unit.
  while (std::abs(value) >= base - (unit == 0 ? 0.5 : 0.005) && unit + 1 < count) {
    value /= base;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", value, units[0])
                   : fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace

int64_t ParseInt(std::string_view what, std::string_view text, int64_t low, int64_t high) {
  return ParseNumber<int64_t>(what, text, low, high, "a whole number");
}

double ParseDouble(std::string_view what, std::string_view text, double low, double high) {
  return ParseNumber<double>(what, text, low, high, "a number");
}

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = std::numeric_limits<int>::max();
  for (const std::string& candidate : known) {
    const size_t section = SharedSection(word, candidate);
    const std::string_view a = word.substr(section),
                           b = std::string_view(candidate).substr(section);
    const int distance = EditDistance(a, b);
    // A third of the letters may be wrong, but words without a common one are not near.
    const int most = std::min<int>(std::max<int>(1, static_cast<int>(a.size()) / 3),
                                   static_cast<int>(std::max(a.size(), b.size())) - 1);
    if (distance <= most && distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string JsonProblem(std::string_view what) {
  const auto skip_behind = [&](std::string_view mark) {
    if (const size_t at = what.find(mark); at != std::string_view::npos) {
      what.remove_prefix(at + mark.size());
    }
  };
  if (what.starts_with("[json.exception.")) skip_behind("] ");
  std::string place;
  if (constexpr std::string_view kParse = "parse error"; what.starts_with(kParse)) {
    what.remove_prefix(kParse.size());
    if (what.starts_with(" at ")) what.remove_prefix(4);
    const size_t colon = what.find(": ");
    if (colon != std::string_view::npos) {
      place = what.substr(0, colon + 2);
      what.remove_prefix(colon + 2);
    }
    if (what.starts_with("syntax error")) skip_behind(" - ");
  }
  if (constexpr std::string_view kOverflow = "number overflow parsing ";
      what.starts_with(kOverflow)) {
    return fmt::format("the number {} is beyond the range of double",
                       what.substr(kOverflow.size()));
  }
  // It quotes what it read last, which may be the whole text.
  constexpr size_t kLongest = 200;
  return place + (what.size() <= kLongest ? std::string(what)
                                          : std::string(what.substr(0, kLongest)) + "...");
}

std::string WithCommas(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return Scaled(bytes, 1024, kUnits, 5);
}

std::string HumanCount(double value) {
  // A rate below 1 (a step of many seconds) must not become 0.
  if (value < 999.5) return fmt::format("{:.3g}", value);
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  std::string text = Scaled(value, 1000, kUnits, 6);
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string HumanRate(double value, std::string_view unit) {
  const std::string count = HumanCount(value);
  return fmt::format("{}{}{}", count, count.find(' ') == std::string::npos ? " " : "", unit);
}

std::string HumanDuration(double seconds) {
  constexpr double kCentury = 3.2e9;
  if (!(seconds >= 0 && seconds < kCentury)) return "?";
  const int64_t total = std::llround(seconds);
  const int64_t hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{}:{:02}", minutes, total % 60);
}

}  // namespace denseformer

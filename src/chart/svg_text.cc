// Text and numbers of drawings.
#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "chart/svg.h"

namespace denseformer {
namespace {

// Length of the UTF-8 sequence that begins at `at`; 0 where there is none (overlong and surrogate
// forms included).
size_t Utf8Length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                        : (first & 0xF0) == 0xE0         ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

// "1.50e-05" -> "1.5e-5"
std::string Scientific(double value, int digits) {
  std::string text = fmt::format("{:.{}e}", value, digits);
  const size_t e = text.find('e');
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return fmt::format("{}e{}", mantissa, std::stoi(text.substr(e + 1)));
}

}  // namespace

std::string EscapeXml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    const char c = text[at];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++at;
      continue;
    }
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (length > 1) {
      const std::string_view sequence = text.substr(at, length);
      if (sequence != "\xEF\xBF\xBE" && sequence != "\xEF\xBF\xBF") out += sequence;
    } else if (c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
    at += length;
  }
  return out;
}

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-3 || size >= 1e15) return Scientific(value, 3);
  if (size >= 999.95) return WithCommas(std::llround(value));
  return fmt::format("{:.4g}", value);
}

std::string TickLabel(double value) {
  const double size = std::abs(value);
  if (size < 1e-12) return "0";
  if (size < 1e-3 || size >= 1e15) return Scientific(value, 2);
  if (size >= 1e12) return fmt::format("{:.4g}T", value / 1e12);
  if (size >= 1e9) return fmt::format("{:.4g}B", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.5g}", value);
}

std::string SourceName(int source) {
  std::string name = "X";
  for (char digit : std::to_string(source)) {
    name += "\xE2\x82";  // U+2080 SUBSCRIPT ZERO and the nine that follow it
    name += static_cast<char>(0x80 + (digit - '0'));
  }
  return name;
}

std::string Shortened(const std::string& text, double width) {
  constexpr double kLetter = 6.6;
  const size_t most = static_cast<size_t>(std::max(3.0, width / kLetter));
  size_t letters = 0;
  for (size_t at = 0; at < text.size(); ++letters) {
    if (letters + 1 == most && text.size() > at + 1) return text.substr(0, at) + "…";
    at += std::max<size_t>(1, Utf8Length(text, at));
  }
  return text;
}

}  // namespace denseformer

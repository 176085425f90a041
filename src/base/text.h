// Small text helpers: strict numbers, suggestions, quantities for people.
#ifndef DENSEFORMER_BASE_TEXT_H_
#define DENSEFORMER_BASE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

// The whole of `text` as a number within [low, high]; throws kUsage naming `what` otherwise
// (trailing junk, out of range, not finite).
int64_t ParseInt(std::string_view what, std::string_view text, int64_t low, int64_t high);
double ParseDouble(std::string_view what, std::string_view text, double low, double high);

// The entry of `known` nearest to `word` by edit distance, or "" where none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// " (did you mean 'x'?)" for the nearest known word, or "".
std::string DidYouMean(std::string_view word, const std::vector<std::string>& known);

std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view Trim(std::string_view text);

// What an exception of the JSON library says, in plain words: "[json.exception.parse_error.101]
// parse error at line 1, column 2: syntax error while parsing value - X" -> "line 1, column 2: X".
std::string JsonProblem(std::string_view what);

// 1234567 -> "1,234,567".
std::string WithCommas(int64_t value);
// 1610612736 -> "1.50 GiB".
std::string HumanBytes(double bytes);
// 1.5e9 -> "1.50 G" (decimal).
std::string HumanCount(double value);
// (1.5e4, "tokens/s") -> "15.00 ktokens/s"; (40, "tokens/s") -> "40 tokens/s".
std::string HumanRate(double value, std::string_view unit);
// 3725 -> "1:02:05"; 65 -> "1:05"; "?" for what is negative, not finite or beyond a century.
std::string HumanDuration(double seconds);

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_TEXT_H_

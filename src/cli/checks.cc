#include "cli/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/text.h"

namespace denseformer {
namespace {

template <class T>
CLI::Validator Within(T low, T high, const char* kind) {
  const std::string expected = high == std::numeric_limits<T>::max()
                                   ? fmt::format("{} of at least {}", kind, low)
                                   : fmt::format("{} from {} to {}", kind, low, high);
  return CLI::Validator(
      [=](std::string& text) {
        T value{};
        const char* const end = text.data() + text.size();
        const auto [stop, status] = std::from_chars(text.data(), end, value);
        // The comparisons are false for what is not a number.
        const bool good = status == std::errc() && stop == end && value >= low && value <= high;
        return good ? std::string() : fmt::format("got '{}', expected {}", text, expected);
      },
      /*validator_desc=*/"");
}

}  // namespace

CLI::Validator WholeNumber(int64_t low, int64_t high) {
  return Within<int64_t>(low, high, "a whole number");
}

CLI::Validator Number(double low, double high) { return Within<double>(low, high, "a number"); }

CLI::Validator OneOf(std::vector<std::string> names) {
  const std::string description = "{" + Join(names, ",") + "}";
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        return fmt::format("got '{}', expected {}{}", text, Join(names, ", "),
                           DidYouMean(text, names));
      },
      description);
}

CLI::Validator FileToWrite() {
  return CLI::Validator(
      [](std::string& text) {
        std::error_code ignored;
        const bool directory = std::filesystem::is_directory(text, ignored);
        return directory ? fmt::format("{} is a directory, expected a file", text) : std::string();
      },
      /*validator_desc=*/"");
}

}  // namespace denseformer

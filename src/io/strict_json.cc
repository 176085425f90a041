#include "io/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {

nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         const JsonLimits& limits) {
  using Event = nlohmann::json::parse_event_t;
  // The parser takes a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    Throw(ErrorCode::kCorrupt, "{}: zero byte at offset {} of the JSON text", where, zero);
  }
  int64_t values = 0;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  auto watch = [&](int depth, Event event, nlohmann::json& parsed) {
    if (++values > limits.values) {
      Throw(ErrorCode::kCorrupt, "{}: more than {} JSON values", where, limits.values);
    }
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= limits.depth) {
        Throw(ErrorCode::kCorrupt, "{}: JSON nested deeper than {}", where, limits.depth);
      }
      keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        Throw(ErrorCode::kCorrupt, "{}: key '{}' appears twice in one object", where, key);
      }
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not JSON: {}", where, JsonProblem(error.what()));
  }
}

}  // namespace denseformer

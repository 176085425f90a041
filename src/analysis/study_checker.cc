#include "analysis/study_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace denseformer {

StudyChecker::StudyChecker(std::string where, std::string study)
    : where_(std::move(where)), study_(std::move(study)) {}

void StudyChecker::Fail(const std::string& problem) const {
  Throw(ErrorCode::kCorrupt, "{}: not a study '{}' ({}); run denseformer analyze again", where_,
        study_, problem);
}

const StudyJson& StudyChecker::Member(const StudyJson& json, const char* key) const {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (!json.is_object() || found == json.end()) Fail(fmt::format("no '{}'", key));
  return *found;
}

int64_t StudyChecker::Integer(const StudyJson& json, const char* key, int64_t low,
                              int64_t high) const {
  const StudyJson& value = Member(json, key);
  if (!value.is_number_integer() || value.get<int64_t>() < low || value.get<int64_t>() > high)
    Fail(fmt::format("'{}' is not an integer from {} to {}", key, low, high));
  return value.get<int64_t>();
}

int64_t StudyChecker::Depth(const StudyJson& json) const {
  constexpr int64_t kMostBlocks = 1 << 16;
  return Integer(json, "depth", 1, kMostBlocks);
}

const StudyJson& StudyChecker::Array(const StudyJson& json, const char* key) const {
  const StudyJson& value = Member(json, key);
  if (!value.is_array()) Fail(fmt::format("'{}' is not a list", key));
  return value;
}

void StudyChecker::Numbers(const StudyJson& list, const char* key, int64_t size) const {
  const bool numbers =
      list.is_array() && std::all_of(list.begin(), list.end(), [](const StudyJson& value) {
        return value.is_number() || value.is_null();
      });
  if (!numbers) Fail(fmt::format("'{}' holds something other than numbers", key));
  if (size >= 0 && static_cast<int64_t>(list.size()) != size)
    Fail(fmt::format("'{}' has {} numbers in a list, expected {}", key, list.size(), size));
}

void StudyChecker::Columns(const StudyJson& json, std::initializer_list<const char*> keys) const {
  const int64_t size = static_cast<int64_t>(Array(json, *keys.begin()).size());
  for (const char* key : keys) Numbers(Array(json, key), key, size);
}

}  // namespace denseformer

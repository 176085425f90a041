#include "analysis/study_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBlocks = 1 << 16;

class Checker {
 public:
  Checker(const std::string& where, const std::string& study) : where_(where), study_(study) {}

  [[noreturn]] void Fail(const std::string& expected) const {
    Throw(ErrorCode::kCorrupt, "{}: not a study '{}' ({}); run denseformer analyze again", where_,
          study_, expected);
  }
  const Json& Member(const Json& json, const char* key) const {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (!json.is_object() || found == json.end()) Fail(fmt::format("no '{}'", key));
    return *found;
  }
  int64_t Integer(const Json& json, const char* key, int64_t low, int64_t high) const {
    const Json& value = Member(json, key);
    if (!value.is_number_integer() || value.get<int64_t>() < low || value.get<int64_t>() > high)
      Fail(fmt::format("'{}' is no integer from {} to {}", key, low, high));
    return value.get<int64_t>();
  }
  const Json& Array(const Json& json, const char* key) const {
    const Json& value = Member(json, key);
    if (!value.is_array()) Fail(fmt::format("'{}' is no list", key));
    return value;
  }
  // A list of numbers and nulls; `size` -1: of any length.
  void Numbers(const Json& list, const char* key, int64_t size) const {
    const bool numbers =
        list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& value) {
          return value.is_number() || value.is_null();
        });
    if (!numbers) Fail(fmt::format("'{}' holds something other than numbers", key));
    if (size >= 0 && static_cast<int64_t>(list.size()) != size)
      Fail(fmt::format("'{}' has {} numbers in a list, expected {}", key, list.size(), size));
  }

  void Weights(const Json& json) const {
    const int64_t size = Integer(json, "depth", 1, kMostBlocks) + 1;
    Array(json, "runs");
    for (const char* key : {"mean", "standard_error"}) {
      const Json& rows = Array(json, key);
      if (static_cast<int64_t>(rows.size()) != size)
        Fail(fmt::format("'{}' has {} rows, expected {}", key, rows.size(), size));
      for (const Json& row : rows) Numbers(row, key, size);
    }
  }
  void Evolution(const Json& json) const {
    const int64_t depth = Integer(json, "depth", 1, kMostBlocks);
    const Json& steps = Array(json, "steps");
    for (const Json& step : steps) {
      if (!step.is_number_integer()) Fail("'steps' holds something other than integers");
    }
    const Json &modules = Member(json, "modules"), &sources = Member(json, "sources");
    if (!modules.is_object()) Fail("'modules' is no object");
    for (const auto& [block, snapshots] : modules.items()) {
      const Json& read = Array(sources, block.c_str());
      for (const Json& source : read) {
        if (!source.is_number_integer() || source < 0 || source > depth)
          Fail("'sources' holds something other than numbers of outputs");
      }
      const bool number =
          !block.empty() && block.size() < 6 &&
          std::all_of(block.begin(), block.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (!number || std::stoll(block) > depth) Fail("'modules' has a key that is no block");
      if (!snapshots.is_array() || snapshots.size() != steps.size())
        Fail(fmt::format("'modules' has other than {} snapshots of block {}", steps.size(), block));
      for (const Json& weights : snapshots)
        Numbers(weights, "modules", static_cast<int64_t>(read.size()));
    }
  }
  void Columns(const Json& json, std::initializer_list<const char*> keys) const {
    const int64_t size = static_cast<int64_t>(Array(json, *keys.begin()).size());
    for (const char* key : keys) Numbers(Array(json, key), key, size);
  }
  void Spectra(const Json& json) const {
    for (const Json& group : Array(json, "groups")) {
      if (!Member(group, "name").is_string()) Fail("'name' of a group is no text");
      Numbers(Array(group, "values"), "values", -1);
    }
  }
  void Sources(const Json& json) const {
    const int64_t depth = Integer(json, "depth", 1, kMostBlocks);
    for (const Json& module : Array(json, "modules")) {
      Integer(module, "block", 1, depth);
      for (const Json& source : Array(module, "sources")) {
        Integer(source, "source", 0, depth);
        if (!Member(source, "share").is_number()) Fail("'share' is no number");
        Member(source, "weight");
      }
    }
  }

 private:
  const std::string& where_;
  const std::string& study_;
};

}  // namespace

void CheckStudy(const std::string& name, const Json& json, const std::string& where) {
  const Checker check(where, name);
  if (check.Member(json, "study") != name) check.Fail("'study' has another name");
  if (name == "weights") check.Weights(json);
  if (name == "evolution") check.Evolution(json);
  if (name == "cosine") check.Columns(json, {"cosine", "norm_x", "norm_y"});
  if (name == "pruning") check.Columns(json, {"percent", "pruned", "loss", "perplexity"});
  if (name == "spectra") check.Spectra(json);
  if (name == "sources") check.Sources(json);
}

}  // namespace denseformer

#include "train/json_lines.h"

#include "base/error.h"
#include "base/log.h"

namespace denseformer {
namespace {

// The lines of `text` that hold a record of at most `step`.
std::string WholeLinesUpTo(const std::string& text, int64_t step) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end - begin + 1);
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool usable = record.is_object() && record.contains("step") &&
                        record["step"].is_number_integer() && record["step"].get<int64_t>() <= step;
    if (usable) kept += line;
    begin = end + 1;
  }
  return kept;
}

}  // namespace

JsonLines::JsonLines(const std::string& path, uint64_t keep, int64_t step) {
  kept_ = keep;
  if (FileExists(path)) {
    const std::string text = ReadFile(path, size_t{1} << 34);
    if (text.size() >= keep && (keep == 0 || text[keep - 1] == '\n')) {
      if (text.size() > keep) TruncateFile(path, keep);
      hasher_.Add(text.data(), keep);
    } else {
      LogWarning("{} is not as it was at step {}; keeping its whole lines up to there", path, step);
      const std::string kept = WholeLinesUpTo(text, step);
      WriteFileAtomic(path, kept);
      kept_ = kept.size();
      hasher_.Add(kept);
    }
  } else if (keep > 0) {
    LogWarning("{} is missing; it begins again after step {}", path, step);
    kept_ = 0;
  }
  out_.emplace(path, /*append=*/true);
}

void JsonLines::Append(const nlohmann::ordered_json& record) {
  using Json = nlohmann::ordered_json;
  const std::string line = record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  out_->Write(line);
  hasher_.Add(line);
}

std::vector<nlohmann::ordered_json> ReadJsonLines(const std::string& path) {
  const std::string text = ReadFile(path, size_t{1} << 34);
  std::vector<nlohmann::ordered_json> records;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    ++number;
    const std::string line = text.substr(begin, end - begin);
    auto record = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) {
      Throw(ErrorCode::kCorrupt, "{}:{}: expected a JSON object", path, number);
    }
    records.push_back(std::move(record));
    begin = end + 1;
  }
  return records;
}

}  // namespace denseformer

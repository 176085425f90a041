// A file with one JSON object per line, appended to during a run.
//
// A resumed run cuts the file back to what it was at its checkpoint, so that in the end it holds
// what an uninterrupted run would have written, and each line once.
#ifndef DENSEFORMER_TRAIN_JSON_LINES_H_
#define DENSEFORMER_TRAIN_JSON_LINES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace denseformer {

class JsonLines {
 public:
  // Keeps the first `keep` bytes of the file at `path`: what it held when the checkpoint of `step`
  // was saved. Where the file is not as it was then (shorter, or cut in a line), the whole lines
  // with a "step" of at most `step` are kept, with a warning.
  JsonLines(const std::string& path, uint64_t keep, int64_t step);

  // One write, so that a killed process leaves at most one incomplete line, the last.
  void Append(const nlohmann::ordered_json& record);
  void Sync() { out_->Sync(); }
  uint64_t size() const { return kept_ + out_->size(); }
  // The hash of the whole file.
  std::string Hash() const { return hasher_.Hex(); }

 private:
  uint64_t kept_ = 0;
  Hasher hasher_;
  std::optional<OutputFile> out_;
};

// All records of a file. An incomplete last line is dropped (a run that is being written); any
// other wrong line throws kCorrupt with its number.
std::vector<nlohmann::ordered_json> ReadJsonLines(const std::string& path);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_JSON_LINES_H_

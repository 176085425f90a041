// Checks of stored results of studies, which users can edit or damage.
#ifndef DENSEFORMER_ANALYSIS_STUDY_CHECKER_H_
#define DENSEFORMER_ANALYSIS_STUDY_CHECKER_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

namespace denseformer {

using StudyJson = nlohmann::ordered_json;

// Every function throws kCorrupt where the JSON is not as expected.
class StudyChecker {
 public:
  // `where` (the file) and `study` stand in the message.
  StudyChecker(std::string where, std::string study);

  [[noreturn]] void Fail(const std::string& problem) const;

  const StudyJson& Member(const StudyJson& json, const char* key) const;
  int64_t Integer(const StudyJson& json, const char* key, int64_t low, int64_t high) const;
  // The number of blocks under "depth".
  int64_t Depth(const StudyJson& json) const;
  const StudyJson& Array(const StudyJson& json, const char* key) const;
  // A list of numbers and nulls; `size` -1: of any length.
  void Numbers(const StudyJson& list, const char* key, int64_t size) const;
  // Lists of numbers of equal length.
  void Columns(const StudyJson& json, std::initializer_list<const char*> keys) const;

 private:
  std::string where_, study_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDY_CHECKER_H_

// The table of studies.
#include <algorithm>
#include <iterator>

#include "analysis/study.h"

// One row per study, in the order in which they are shown: k<Name>Study is defined in studies/.
#define DENSEFORMER_STUDIES(ROW) \
  ROW(Weights)                   \
  ROW(Evolution)                 \
  ROW(Mixing)                    \
  ROW(Sources)                   \
  ROW(Cosine)                    \
  ROW(Pruning)                   \
  ROW(Spectra)

namespace denseformer {

#define DENSEFORMER_DECLARE(name) extern const Study k##name##Study;
DENSEFORMER_STUDIES(DENSEFORMER_DECLARE)
#undef DENSEFORMER_DECLARE

std::span<const Study* const> Studies() {
#define DENSEFORMER_ADDRESS(name) &k##name##Study,
  static constexpr const Study* kTable[] = {DENSEFORMER_STUDIES(DENSEFORMER_ADDRESS)};
#undef DENSEFORMER_ADDRESS
  return kTable;
}

const Study* FindStudy(const std::string& name) {
  const auto found = std::find_if(Studies().begin(), Studies().end(),
                                  [&](const Study* study) { return study->name == name; });
  return found == Studies().end() ? nullptr : *found;
}

void CheckStudy(const Study& study, const StudyJson& json, const std::string& where) {
  const StudyChecker checker(where, study.name);
  if (checker.Member(json, "study") != study.name) checker.Fail("'study' has another name");
  study.check(json, checker);
}

}  // namespace denseformer

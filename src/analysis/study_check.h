// Names of the studies, and whether a file of RUN/analysis holds what a study writes.
#ifndef DENSEFORMER_ANALYSIS_STUDY_CHECK_H_
#define DENSEFORMER_ANALYSIS_STUDY_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>

namespace denseformer {

// All studies, in the order in which they are shown.
inline constexpr const char* kStudies[] = {"weights", "evolution", "sources",
                                           "cosine",  "pruning",   "spectra"};

// Throws kCorrupt where `json` does not have the keys and shapes of the study `name` (study.h), so
// that what draws and words it need not ask again. `where` stands in the message.
void CheckStudy(const std::string& name, const nlohmann::ordered_json& json,
                const std::string& where);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDY_CHECK_H_

// What others read from the study "evolution".
#ifndef DENSEFORMER_ANALYSIS_STUDIES_EVOLUTION_H_
#define DENSEFORMER_ANALYSIS_STUDIES_EVOLUTION_H_

#include <vector>

#include "analysis/study_checker.h"

namespace denseformer {

// At each snapshot the mean magnitude of the weights on outputs other than the module's own
// block's. `evolution` has passed its check.
std::vector<double> MeanOlderMagnitudes(const StudyJson& evolution);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDIES_EVOLUTION_H_

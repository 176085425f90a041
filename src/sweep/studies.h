// What a ledger keeps of a study (analysis/study.h): the numbers that tables and charts need, in
// five significant digits.
//
//   weights    {"depth", "pattern", "modules": {"I": [weights of the module after block I]}}
//   evolution  {"steps", "older": mean |weight| on older outputs, "distance": of the weights from
//   the
//              final ones, as a share of that of the first snapshot}
//   cosine     {"cosine", "norm_x", "norm_y"} by depth
//   pruning    {"percent", "loss", "perplexity"}
//   spectra    {"NAME": singular values, largest first}
//   sources    {"I": {"sources", "shares"}}
#ifndef DENSEFORMER_SWEEP_STUDIES_H_
#define DENSEFORMER_SWEEP_STUDIES_H_

#include <string>
#include <vector>

#include "analysis/study.h"
#include "sweep/ledger.h"

namespace denseformer {

// `study` has passed CheckStudy.
LedgerJson CondenseStudy(const std::string& name, const StudyJson& study);

// The weights [depth + 1][depth + 1] of a condensed study, NaN where there is none.
std::vector<std::vector<double>> WeightMatrix(const LedgerJson& weights);

// The numbers of a list; null becomes NaN.
std::vector<double> NumbersOf(const LedgerJson& list);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_STUDIES_H_

// Numbers of one run that claims compare.
//
//   loss, perplexity   over the validation stream at the last step
//   pruning:P          rise of the loss when P % of the depth weights are pruned
//   cosine:S           cosine of what a block reads with the embedding, at the share S of the depth
//   evolution:S        distance of the depth weights from the final ones at the share S of the
//   steps spectra:NAME       log of (sum of the singular values / largest one): how even the
//   spectrum is
#ifndef DENSEFORMER_SWEEP_METRICS_H_
#define DENSEFORMER_SWEEP_METRICS_H_

#include <string>

#include "sweep/ledger.h"

namespace denseformer {

// Throws kInvalid where there is no such metric; `where` begins the message.
void CheckMetric(const std::string& metric, const std::string& where);

// NaN where the run did not finish or lacks the study. The metric has been checked.
double MetricOf(const std::string& metric, const LedgerJson& row);

// "loss", "rise of the loss": how a difference is spoken of.
std::string MetricLabel(const std::string& metric);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_METRICS_H_

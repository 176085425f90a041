// Charts of a sweep, averaged over seeds, from the ledger alone.
//
//   option            loss against an option: x = "lr", "n_layer", "dwa_start", ..., or "dilation"
//                     or "period" of the pattern; one line for each value of the option `series`
//   speed             speed relative to the Transformer, with standard errors, against such an x
//                     (needs benchmarks)
//   curves            validation loss by step, with standard errors
//   time              the same by training time (needs benchmarks)
//   pareto            perplexity against forward passes per second (needs benchmarks)
//   pareto-training   perplexity against training steps per second (needs benchmarks)
//   weights           heat maps of the depth weights, one per row
//   evolution, cosine, pruning, spectra   studies, one line per row
#ifndef DENSEFORMER_SWEEP_CHARTS_H_
#define DENSEFORMER_SWEEP_CHARTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chart/chart.h"
#include "sweep/results.h"
#include "sweep/sweep_file.h"

namespace denseformer {

// Throws kInvalid where the kind is unknown or lacks its x; `where` begins the message.
void CheckChart(const SweepChart& chart, const std::string& where);

// All charts of a file; those without anything to show are left out. `benches` are results of
// `denseformer bench forward` and `bench train`. Ids begin with the id of the file.
std::vector<Chart> SweepCharts(const SweepResult& result,
                               const std::vector<nlohmann::ordered_json>& benches);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_CHARTS_H_

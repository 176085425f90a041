// The exchange rate between a gain in loss and training: how many steps another model needs to
// reach the loss of a model, as a multiple of the model's steps.
//
// Runs of the other model with more and more steps give its loss against steps. For each seed the
// first place where straight lines between them reach the loss of the model is the rate of that
// seed.
#ifndef DENSEFORMER_SWEEP_EXCHANGE_H_
#define DENSEFORMER_SWEEP_EXCHANGE_H_

#include <string>
#include <vector>

#include "sweep/ledger.h"
#include "sweep/statistics.h"
#include "sweep/sweep_file.h"

namespace denseformer {

struct RowResult;

// The first x at which the line through the points falls to `level`; `x` grows. The first x where
// the line begins at `level` or below, infinity where it never gets there.
double FirstReach(const std::vector<double>& x, const std::vector<double>& y, double level);

struct ExchangeResult {
  const Exchange* exchange = nullptr;
  double lowest = 0, highest = 0;  // multiples of the steps of the model that were run
  // For each seed that all rows finished; `lowest` for "at most that", infinity for "more than
  // `highest`".
  std::vector<double> multiples;
  // Over seeds, with its 95 % interval; NaN where one of them is a bound, or there is one seed.
  double mean = 0, low = 0, high = 0;
};

// `model` and `others` as the exchange names them; `others` are put in the order of their steps.
ExchangeResult MakeExchange(const Exchange& exchange, const RowResult& model,
                            std::vector<const RowResult*> others);

// One sentence; `time_ratio` is the time of a step of the model over that of a step of the others,
// with its standard error; NaN where it is not known.
std::string ExchangeText(const ExchangeResult& result, double time_ratio, double time_ratio_error);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_EXCHANGE_H_

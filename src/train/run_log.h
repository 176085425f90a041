// What a run records while it trains, in its directory:
//
//   metrics.jsonl   one object per line, in the order of time:
//     every log.every steps   step, tokens, epoch, loss, lr, grad_norm, seconds, tokens_per_second,
//                             gemm_share; "skipped": true where loss or gradient were not finite
//     each validation         step, val_loss, val_perplexity, val_accuracy, val_tokens, seconds
//     at the end              step, final_loss, final_perplexity, final_accuracy,
//                             final_bits_per_byte (may be null), final_tokens, seconds
//   alphas.jsonl    snapshots of the DWA weights: {"step", "alphas": {"I": [weights of the module
//                   after block I, oldest source first]}}
//   tensorboard/    the same as TensorBoard events
//
// "step" counts finished steps. Numbers that are not finite are null. The keys seconds,
// tokens_per_second and gemm_share speak of the clock; all else is the same whenever the run is.
#ifndef DENSEFORMER_TRAIN_RUN_LOG_H_
#define DENSEFORMER_TRAIN_RUN_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "model/model.h"
#include "train/evaluate.h"
#include "train/event_file.h"
#include "train/json_lines.h"
#include "train/options.h"

namespace denseformer {

inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kAlphasFile = "alphas.jsonl";

struct StepRecord {
  int64_t step = 0;
  int64_t tokens = 0;  // since the beginning of the run
  double epoch = 0;
  double loss = 0;
  double rate = 0;
  double gradient_norm = 0;
  bool skipped = false;
  double seconds = 0;  // of the run
  double tokens_per_second = 0;
  double gemm_share = 0;
};

class RunLog {
 public:
  // How much of the files belongs to the checkpoint that the run resumes from.
  struct Position {
    int64_t step = 0;
    uint64_t metrics_bytes = 0, alphas_bytes = 0;
    std::string metrics_hash, alphas_hash;  // of these bytes; "" where not recorded
  };

  RunLog(const std::string& run, const TrainOptions& options, const Position& position);

  void Step(const StepRecord& record);
  void Validation(int64_t step, const EvalResult& result, double seconds);
  void Final(int64_t step, const EvalResult& result, double seconds);
  void Alphas(int64_t step, const Model& model);

  // Makes what was recorded durable, and says how much that is.
  Position Sync(int64_t step);

 private:
  JsonLines metrics_, alphas_;
  std::optional<EventFile> events_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_RUN_LOG_H_

#include "train/run_place.h"

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "io/run_directory.h"
#include "train/stored_options.h"

namespace denseformer {

void CheckPlace(const std::string& run, bool resume) {
  CheckNoFile(run);
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  if (!resume && !checkpoints.empty()) {
    Throw(ErrorCode::kUsage,
          "train: {} holds a run already (newest checkpoint: step {}); resume it with --resume, or "
          "choose another directory",
          run, checkpoints.back().step);
  }
  const std::string weights = UnexplainedWeights(run);
  if (!weights.empty() && checkpoints.empty() && !FileExists(run + "/" + kOptionsFile)) {
    Throw(ErrorCode::kUsage,
          "train: {} holds the weights of another model, which training there would overwrite; "
          "choose a new directory, and --init {} to start from them",
          run, run);
  }
  const std::string metrics = run + "/metrics.jsonl";
  if (checkpoints.empty() && FileExists(metrics) && FileSize(metrics) > 0) {
    Throw(ErrorCode::kCorrupt,
          "train: {} has recorded steps but no checkpoint; nothing to resume, and starting "
          "again would overwrite it: move it away",
          run);
  }
  if (!weights.empty()) {
    Throw(ErrorCode::kUsage,
          "train: {} holds weights that no checkpoint of this run explains; training would "
          "overwrite them: move the file away",
          weights);
  }
}

void PutDamagedAside(const std::string& run, int64_t step) {
  for (const CheckpointInfo& checkpoint : ListCheckpoints(run)) {
    if (checkpoint.step <= step) continue;
    const std::filesystem::path path(checkpoint.path);
    const std::string aside =
        (path.parent_path() / ("damaged-" + path.filename().string())).string();
    RemoveTree(aside);
    RenameDurably(checkpoint.path, aside);
    LogWarning("the damaged checkpoint is kept as {}", aside);
  }
}

}  // namespace denseformer

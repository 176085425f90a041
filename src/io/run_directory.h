// Run directories: a model, and all that training needs to resume. Common tools can read them.
//
//   RUN/
//     config.json          {"model_type": "denseformer", <fields of ModelConfig>}
//     tokenizer.json       the tokenizer (optional)
//     manifest.json        size and hash of the files above, which are written once
//     model.safetensors    the weights of the newest checkpoint: a hard link to its file (a copy
//     where
//                          the file system has no links), put in place by rename
//     run.lock             held by the one process that writes
//     checkpoints/
//       step-NNNNNNNN/     at least 8 digits
//         model.safetensors      weights, fp32, names of parameters.h
//         optimizer.safetensors  exp_avg.<name>, exp_avg_sq.<name>: the moments of each parameter
//         state.json             {"format", "version", "step", "validation_loss", "trainer": {...}}
//         manifest.json          size and hash of the three files
//       step-NNNNNNNN.old/ a checkpoint of the same step while a new one takes its place
//       .tmp-*             being written or removed; the next writer clears it
//   A trainer keeps further files of its own in RUN.
//
// A manifest is {"format": "denseformer-manifest", "version": 1, "files": {NAME: {"size", "xxh3"}}}
// in exactly the form that this program writes. model.safetensors also carries its configuration
// and a hash of its tensors (safetensors.h), so that it can be checked where it stands alone.
//
// Order of a save: files written and synced in .tmp-*, manifest written and synced, directory
// synced, renamed to step-*, checkpoints/ synced: from here on it is saved. Then model.safetensors
// is renewed and old checkpoints go (renamed to .tmp-* first). So whatever is named step-* is
// whole, unless the disk damaged it, and at every moment the last checkpoint can be loaded.
#ifndef DENSEFORMER_IO_RUN_DIRECTORY_H_
#define DENSEFORMER_IO_RUN_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "denseformer/config.h"
#include "denseformer/model.h"
#include "model/model.h"

namespace denseformer {

// The moments of AdamW, each with the layout of model.table(); the elements between tensors are 0.
struct Moments {
  std::span<float> first, second;
};

// What goes into state.json. Numbers come back bit for bit; JSON has no NaN and no infinity, so
// `trainer` must not hold any.
struct TrainerState {
  int64_t step = 0;  // optimizer steps done
  std::optional<double> validation_loss;
  nlohmann::json trainer = nlohmann::json::object();  // whatever else the trainer needs
};

// The right to write to a run, held until destruction; kBusy where another process has it. Makes
// the directory where it is missing, and clears what an interrupted writer left.
class RunWriter {
 public:
  explicit RunWriter(const std::string& run);
  const std::string& run() const { return run_; }

 private:
  std::string run_;
  FileLock lock_;
};

// Writes config.json, tokenizer.json (where `tokenizer` is not empty: its JSON text) and
// manifest.json. A run that has the same ones already stays as it is; kInvalid where it has others.
void WriteRunFiles(const RunWriter& writer, const ModelConfig& config,
                   const std::string& tokenizer);

// kInvalid where `run` is a file.
void CheckNoFile(const std::string& run);

// The run that `path` names, without '/' at the end: itself, or the one around the checkpoint that
// it is. Throws kInvalid where it is a file, kNotFound where there is no run.
std::string FindRun(const std::string& path);
// The same for commands that need more than a checkpoint: that is kUsage.
std::string FindWholeRun(const std::string& path);

// config.json of a run: unknown keys, missing keys and values of a wrong kind are errors.
ModelConfig ReadConfig(const std::string& run);
std::string ConfigToJson(const ModelConfig& config);
ModelConfig ConfigFromJson(const std::string& text, const std::string& where);

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
};

// All checkpoints by name, oldest first, whole or not. Empty where there are none.
std::vector<CheckpointInfo> ListCheckpoints(const std::string& run);

// Throws kCorrupt with the first difference between the files of a checkpoint and its manifest;
// reads every byte.
void VerifyCheckpoint(const std::string& path);

// The newest checkpoint of which every byte is right. Each damaged one met on the way is reported
// by LogError. Throws kNotFound where there is no checkpoint at all, kCorrupt where none is whole.
CheckpointInfo NewestWholeCheckpoint(const std::string& run);

// The whole checkpoint with the lowest validation loss; nothing where none has one.
std::optional<CheckpointInfo> BestCheckpoint(const std::string& run);

// RUN/model.safetensors where it holds weights that are those of no checkpoint of the run (an
// import, an export, a file that was put there), so that writing to the run would lose them; else
// "". A damaged copy of a run that has checkpoints is no loss.
std::string UnexplainedWeights(const std::string& run);

struct SaveOptions {
  int keep = 2;           // newest checkpoints to keep, at least 1
  bool keep_best = true;  // and the one with the lowest validation loss
};

// Saves a checkpoint as described above and returns its path; when it returns, the checkpoint is
// durable. Throws where it is not, with all earlier checkpoints untouched. Trouble after that point
// (renewing RUN/model.safetensors, removing old checkpoints) is reported by LogError and mended by
// the next save.
std::string SaveCheckpoint(const RunWriter& writer, const Model& model, const Moments& moments,
                           const TrainerState& state, const SaveOptions& options = {});

// The last part of SaveCheckpoint, after the checkpoint is durable: RUN/model.safetensors, and old
// checkpoints. For a run that resumes from `checkpoint`, whose writer may have been killed before.
void FinishSave(const RunWriter& writer, const CheckpointInfo& checkpoint,
                const SaveOptions& options);

// Fills model (and calls WeightsChanged) and moments from the checkpoint at `path`, after checking
// every byte and that the checkpoint belongs to a model of the same configuration. Where `moments`
// has empty spans only the weights are loaded.
TrainerState LoadCheckpoint(const std::string& path, Model& model, const Moments& moments);

// The state alone; the files are not verified.
TrainerState ReadState(const std::string& path);

// A model from a run, ready for use. `which` is "" (RUN/model.safetensors; where that is missing or
// damaged, loudly, the newest whole checkpoint), "last", "best", or a step. `run` may also be the
// directory of one checkpoint, or any directory with config.json and model.safetensors.
Model LoadModel(const std::string& run, DType compute, ModelUse use, const std::string& which = "");
// The same for inference alone: a frozen model (model.h), read a few rows at a time, so that
// loading takes little more memory than the model. kAuto takes quantized weights as they are.
Model LoadFrozen(const std::string& run, Precision precision, const std::string& which = "");

// Checks every byte of a run: its files, model.safetensors and all checkpoints. One entry a file or
// checkpoint; `problem` is empty where it is whole.
struct VerifyResult {
  std::string path;
  std::string problem;
};
// Of a checkpoint's directory: that checkpoint alone.
std::vector<VerifyResult> VerifyRun(const std::string& run);

// A new run that holds weights only (import): appears under its name whole, or not at all. kInvalid
// where `run` exists and is not an empty directory.
void CreateRun(const std::string& run, const Model& model, const std::string& tokenizer);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_RUN_DIRECTORY_H_

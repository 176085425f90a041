// Saving and loading one checkpoint; run_directory.h gives the order of a save and why.
#include "io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "io/strict_json.h"
#include "io/weights.h"

namespace denseformer {
namespace {

constexpr const char* kStateFormat = "denseformer-checkpoint";
constexpr int kStateVersion = 1;

std::string StateToText(const TrainerState& state) {
  nlohmann::ordered_json json;
  json["format"] = kStateFormat;
  json["version"] = kStateVersion;
  json["step"] = state.step;
  json["validation_loss"] = nullptr;
  if (state.validation_loss) json["validation_loss"] = *state.validation_loss;
  json["trainer"] = state.trainer;
  try {
    return json.dump(2) + "\n";
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kInvalid, "state of the trainer: {}", JsonProblem(error.what()));
  }
}

std::array<NamedBuffer, 2> MomentBuffers(const Moments& moments) {
  return {NamedBuffer{"exp_avg.", moments.first.data()},
          NamedBuffer{"exp_avg_sq.", moments.second.data()}};
}

// All files of a checkpoint in `directory`, synced.
void WriteFiles(const std::string& directory, const Model& model, const Moments& moments,
                const TrainerState& state) {
  Manifest manifest;
  manifest.WriteFile(directory, kModelFile, [&](const Manifest::Sink& sink) {
    WriteSafetensors(TensorsOf(model.table(), {"", model.weights().data()}),
                     WeightsMetadata(model.config()), sink);
  });
  manifest.WriteFile(directory, kOptimizerFile, [&](const Manifest::Sink& sink) {
    std::vector<TensorToWrite> tensors;
    for (const NamedBuffer& buffer : MomentBuffers(moments)) {
      for (TensorToWrite& tensor : TensorsOf(model.table(), buffer)) {
        tensors.push_back(std::move(tensor));
      }
    }
    WriteSafetensors(tensors, {}, sink);
  });
  manifest.WriteFile(directory, kStateFile, StateToText(state));
  manifest.WriteTo(directory);
  SyncDirectory(directory);
}

// Gives the whole checkpoint at `temporary` its name. One that has the name already steps aside and
// stays loadable until the new one is in place.
void PutInPlace(const std::string& temporary, const std::string& path) {
  const std::string old = path + kOldSuffix;
  if (FileExists(path)) {
    if (FileExists(old) && !LooksWhole(path)) {
      RemoveTree(path);
    } else {
      RemoveTree(old);
      RenameDurably(path, old);
    }
  }
  RenameDurably(temporary, path);
}

// RUN/model.safetensors becomes another name of the checkpoint's file.
void Publish(const std::string& run, const std::string& checkpoint) {
  const std::string from = checkpoint + "/" + kModelFile, to = run + "/" + kModelFile;
  const std::string temporary = run + "/" + kTemporaryPrefix + kModelFile;
  RemoveFile(temporary);
  if (!LinkFile(from, temporary)) {
    const MappedFile source(from);
    OutputFile copy(temporary);
    copy.Write(source.data(), source.size());
    copy.Sync();
    copy.Close();
  }
  RenameDurably(temporary, to);
  RemoveFile(temporary);  // rename leaves it where both are the same file already
}

void RemoveCheckpoint(const std::string& run, const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string aside = CheckpointsDirectory(run) + "/" + kTemporaryPrefix + "remove-" + name;
  RemoveTree(aside);
  RenameDurably(path, aside);
  RemoveTree(aside);
}

// Removes what is neither among the newest nor the best. Damaged checkpoints do not count.
void RemoveOld(const std::string& run, const SaveOptions& options) {
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  std::set<std::string> kept;
  for (size_t i = checkpoints.size(); i-- > 0 && kept.size() < static_cast<size_t>(options.keep);) {
    const bool replaced = i + 1 < checkpoints.size() &&
                          checkpoints[i + 1].step == checkpoints[i].step &&
                          kept.count(checkpoints[i + 1].path) > 0;
    if (!replaced && LooksWhole(checkpoints[i].path)) kept.insert(checkpoints[i].path);
  }
  if (options.keep_best) {
    const std::vector<CheckpointInfo> rated = ByValidationLoss(checkpoints);
    if (!rated.empty()) kept.insert(rated.front().path);
  }
  for (const CheckpointInfo& checkpoint : checkpoints) {
    if (kept.count(checkpoint.path) == 0) RemoveCheckpoint(run, checkpoint.path);
  }
}

}  // namespace

void FinishSave(const RunWriter& writer, const CheckpointInfo& checkpoint,
                const SaveOptions& options) {
  const std::string& run = writer.run();
  try {
    Publish(run, checkpoint.path);
  } catch (const Error& error) {
    LogError("checkpoint of step {} is saved, but {}/{} is still an earlier one: {}",
             checkpoint.step, run, kModelFile, error.what());
    return;  // an earlier checkpoint may be the only one it has in common: remove none
  }
  try {
    RemoveOld(run, options);
  } catch (const Error& error) {
    LogError("checkpoint of step {} is saved, but an old one could not be removed: {}",
             checkpoint.step, error.what());
  }
}

std::string SaveCheckpoint(const RunWriter& writer, const Model& model, const Moments& moments,
                           const TrainerState& state, const SaveOptions& options) {
  const auto size = static_cast<size_t>(model.table().buffer_size());
  DF_CHECK(moments.first.size() == size && moments.second.size() == size);
  DF_CHECK(state.step >= 0 && options.keep >= 1);
  const std::string& run = writer.run();
  const std::string path = CheckpointPath(run, state.step);
  const std::string temporary =
      fmt::format("{}/{}step-{:08}", CheckpointsDirectory(run), kTemporaryPrefix, state.step);
  try {
    MakeDirectory(CheckpointsDirectory(run));
    RemoveTree(temporary);
    MakeDirectory(temporary);
    WriteFiles(temporary, model, moments, state);
    PutInPlace(temporary, path);
  } catch (const Error& error) {
    std::error_code ignored;  // the next writer clears what is left
    std::filesystem::remove_all(temporary, ignored);
    Throw(error.code(),
          "checkpoint of step {} could not be saved durably: {}; the earlier ones are "
          "untouched",
          state.step, error.what());
  }
  FinishSave(writer, {state.step, path}, options);
  return path;
}

TrainerState ReadState(const std::string& path) {
  const std::string file = path + "/" + kStateFile;
  const nlohmann::json json = ParseJson(ReadFile(file), file);
  TrainerState state;
  try {
    if (json.at("format") != kStateFormat || json.at("version") != kStateVersion) {
      Throw(ErrorCode::kUnsupported, "{}: format {} version {}, expected {} version {}", file,
            json.at("format").dump(), json.at("version").dump(), kStateFormat, kStateVersion);
    }
    state.step = json.at("step");
    if (!json.at("validation_loss").is_null()) state.validation_loss = json["validation_loss"];
    state.trainer = json.at("trainer");
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not the state of a checkpoint: {}", file,
          JsonProblem(error.what()));
  }
  return state;
}

TrainerState LoadCheckpoint(const std::string& path, Model& model, const Moments& moments) {
  VerifyCheckpoint(path);
  const SafetensorsFile weights(path + "/" + kModelFile);
  CheckSameModel(weights, model.config());
  const TrainerState state = ReadState(path);
  const NamedBuffer buffer{"", model.weights().data()};
  ReadWeights(weights, model.table(), {&buffer, 1});
  model.WeightsChanged();
  if (!moments.first.empty()) {
    const auto size = static_cast<size_t>(model.table().buffer_size());
    DF_CHECK(moments.first.size() == size && moments.second.size() == size);
    ReadWeights(SafetensorsFile(path + "/" + kOptimizerFile), model.table(),
                MomentBuffers(moments));
  }
  return state;
}

}  // namespace denseformer

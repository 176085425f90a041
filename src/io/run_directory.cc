#include "io/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "io/weights.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

// Without '/' at the end, so that names can be put behind it and its parent is found.
std::string Normal(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) Throw(ErrorCode::kUsage, "run: the name of the directory is empty");
  return path;
}

std::string MadeRun(const std::string& run) {
  std::error_code error;
  const std::string path = Normal(run);
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) ThrowErrno(error.value(), "cannot make directory {}", parent.string());
  MakeDirectory(path);
  return path;
}

// "NAME.tmp-123": what AtomicFile leaves when its process is killed.
bool IsLeftover(const std::string& name) {
  if (name.starts_with(kTemporaryPrefix)) return true;
  const size_t at = name.rfind(kTemporaryPrefix);
  return at != std::string::npos && at + 5 < name.size() &&
         name.find_first_not_of("0123456789", at + 5) == std::string::npos;
}

void ClearLeftovers(const std::string& directory) {
  std::vector<std::string> leftovers;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (IsLeftover(entry.path().filename().string())) leftovers.push_back(entry.path().string());
  }
  for (const std::string& path : leftovers) RemoveTree(path);
}

// What a run holds besides weights: name and text.
using TextFiles = std::vector<std::pair<std::string, std::string>>;

TextFiles RunTexts(const ModelConfig& config, const std::string& tokenizer) {
  TextFiles texts = {{kConfigFile, ConfigToJson(config)}};
  if (!tokenizer.empty()) texts.emplace_back(kTokenizerFile, tokenizer);
  return texts;
}

bool HasConfig(const std::string& directory) { return FileExists(directory + "/" + kConfigFile); }

bool IsCheckpoint(const std::string& directory) {
  return FileExists(directory + "/" + kStateFile) && !HasConfig(directory);
}

CheckpointInfo CheckpointOf(const std::string& run, const std::string& which) {
  if (which == "last") return NewestWholeCheckpoint(run);
  if (which == "best") {
    if (const auto best = BestCheckpoint(run)) return *best;
    Throw(ErrorCode::kNotFound, "{}: no checkpoint has a validation loss; use 'last'", run);
  }
  if (which.empty() || which.find_first_not_of("0123456789") != std::string::npos) {
    Throw(ErrorCode::kUsage, "checkpoint: got '{}', expected last, best or a step", which);
  }
  const int64_t step = ParseInt("checkpoint", which, 0, INT64_MAX);
  std::vector<std::string> steps;
  for (const CheckpointInfo& checkpoint : ListCheckpoints(run)) {
    if (checkpoint.step == step) {
      VerifyCheckpoint(checkpoint.path);
      return checkpoint;
    }
    steps.push_back(fmt::format("{}", checkpoint.step));
  }
  Throw(ErrorCode::kNotFound, "{}: no checkpoint of step {}; there are: {}", run, step,
        steps.empty() ? "none" : Join(steps, ", "));
}

// The model that `load` makes of the verified weights that `path` and `which` name (LoadModel).
template <class F>
Model LoadFrom(const std::string& path, const ModelConfig& config, const std::string& which,
               F load) {
  const std::string run = FindRun(path);
  const auto from = [&](const std::string& directory) {
    const SafetensorsFile file(directory + "/" + kModelFile);
    VerifyWeights(file);
    CheckSameModel(file, config);
    return load(file);
  };
  if (!which.empty()) return from(CheckpointOf(FindWholeRun(path), which).path);
  if (IsCheckpoint(path)) {
    VerifyCheckpoint(path);
    return from(path);
  }
  try {
    return from(run);
  } catch (const Error& error) {
    const bool damaged =
        error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kNotFound;
    if (!damaged || ListCheckpoints(run).empty()) throw;
    LogWarning("{}; looking for a whole checkpoint", error.what());
    const CheckpointInfo newest = NewestWholeCheckpoint(run);
    LogWarning("using the checkpoint of step {}", newest.step);
    return from(newest.path);
  }
}

// Of a file that may not be looked at, nothing is known: not that it is missing either.
void RequireVisible(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 && errno == EACCES) {
    ThrowErrno(errno, "cannot read {}", path);
  }
}

}  // namespace

RunWriter::RunWriter(const std::string& run)
    : run_(MadeRun(run)), lock_(run_ + "/run.lock", "run " + run_) {
  ClearLeftovers(run_);
  ClearLeftovers(CheckpointsDirectory(run_));
}

void WriteRunFiles(const RunWriter& writer, const ModelConfig& config,
                   const std::string& tokenizer) {
  const std::string& run = writer.run();
  const std::string tokenizer_path = run + "/" + kTokenizerFile;
  const bool keep_tokenizer = tokenizer.empty() && FileExists(tokenizer_path);
  Manifest manifest;
  for (const auto& [name, text] :
       RunTexts(config, keep_tokenizer ? ReadFile(tokenizer_path) : tokenizer)) {
    const std::string path = run + "/" + name;
    if (!FileExists(path)) {
      WriteFileAtomic(path, text);
    } else if (ReadFile(path) != text) {
      Throw(ErrorCode::kInvalid, "{} belongs to another run; choose another directory", path);
    }
    manifest.Note(name, text);
  }
  const std::string path = run + "/" + kManifestFile;
  if (!FileExists(path)) {
    WriteFileAtomic(path, manifest.ToText());
  } else if (ReadFile(path) != manifest.ToText()) {
    Throw(ErrorCode::kCorrupt, "{}: does not describe the files beside it; remove it to continue",
          path);
  }
}

void CheckNoFile(const std::string& run) {
  if (FileExists(run) && !fs::is_directory(run)) {
    Throw(ErrorCode::kInvalid, "{} is a file, expected a run directory", run);
  }
}

std::string FindRun(const std::string& path) {
  const std::string directory = Normal(path);
  RequireVisible(directory);
  RequireVisible(directory + "/" + kConfigFile);
  CheckNoFile(directory);
  if (!FileExists(directory)) Throw(ErrorCode::kNotFound, "{}: no such run directory", directory);
  if (HasConfig(directory)) return directory;
  const fs::path place = fs::absolute(directory).lexically_normal();
  const std::string parent = place.parent_path().string();
  if (IsCheckpoint(directory)) {
    const std::string run = place.parent_path().parent_path().string();
    if (HasConfig(run)) return run;
    Throw(ErrorCode::kNotFound,
          "{}: a checkpoint outside of its run; expected it at RUN/checkpoints, with RUN/{}",
          directory, kConfigFile);
  }
  Throw(ErrorCode::kNotFound, "{}: not a run directory (no {}){}", directory, kConfigFile,
        HasConfig(parent) ? fmt::format("; did you mean {}?", parent) : "");
}

std::string FindWholeRun(const std::string& path) {
  const std::string directory = Normal(path), run = FindRun(directory);
  if (run != directory) {
    Throw(ErrorCode::kUsage, "{} is one checkpoint, expected a run directory: {}", directory, run);
  }
  return run;
}

Model LoadModel(const std::string& path, DType compute, ModelUse use, const std::string& which) {
  const ModelConfig config = ReadConfig(FindRun(path));
  return LoadFrom(path, config, which, [&](const SafetensorsFile& file) {
    Model model(config, compute, use);
    const NamedBuffer buffer{"", model.weights().data()};
    ReadWeights(file, model.table(), {&buffer, 1});
    model.WeightsChanged();
    return model;
  });
}

Model LoadFrozen(const std::string& path, Precision precision, const std::string& which) {
  const ModelConfig config = ReadConfig(FindRun(path));
  return LoadFrom(path, config, which, [&](const SafetensorsFile& file) {
    const ParameterTable table(config, DepthPattern::Parse(config.dwa, config.n_layer));
    const bool stored = precision == Precision::kAuto && HasInt8(file, table);
    Model model(config, stored ? WeightFormat::kInt8 : FormatOf(precision));
    ReadFrozenWeights(file, model);
    return model;
  });
}

std::vector<VerifyResult> VerifyRun(const std::string& run_path) {
  const std::string run = FindRun(run_path);
  std::vector<VerifyResult> results;
  auto check = [&](const std::string& path, auto&& work) {
    VerifyResult& result = results.emplace_back(VerifyResult{path, ""});
    try {
      work();
    } catch (const Error& error) {
      result.problem = error.what();
    }
  };
  if (IsCheckpoint(run_path)) {
    check(run_path, [&] { VerifyCheckpoint(run_path); });
    return results;
  }
  check(run + "/" + kManifestFile, [&] { Manifest::Read(run).Verify(run); });
  check(run + "/" + kModelFile, [&] {
    const SafetensorsFile file(run + "/" + kModelFile);
    if (!file.has_hash()) {
      Throw(ErrorCode::kCorrupt, "{}: holds no hash to verify against", file.path());
    }
    file.VerifyHash();
    CheckSameModel(file, ReadConfig(run));
  });
  for (const CheckpointInfo& checkpoint : ListCheckpoints(run)) {
    check(checkpoint.path, [&] {
      VerifyCheckpoint(checkpoint.path);
      CheckSameModel(SafetensorsFile(checkpoint.path + "/" + kModelFile), ReadConfig(run));
    });
  }
  return results;
}

void WriteRunDirectory(const std::string& directory, const RunContent& content) {
  const std::string run = Normal(directory);
  if (FileExists(run) && !(fs::is_directory(run) && fs::is_empty(run))) {
    Throw(ErrorCode::kInvalid, "{} exists already; choose another directory or remove it", run);
  }
  const std::string temporary = fmt::format("{}{}{}", run, kTemporaryPrefix, getpid());
  try {
    MadeRun(temporary);
    Manifest manifest;
    for (const auto& [name, text] : content.texts) manifest.WriteFile(temporary, name, text);
    manifest.WriteTo(temporary);
    Manifest weights;  // they carry a hash of their own
    weights.WriteFile(temporary, kModelFile, [&](const Manifest::Sink& sink) {
      WriteSafetensors(content.tensors, content.metadata, sink);
    });
    SyncDirectory(temporary);
    RenameDurably(temporary, run);
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void CreateRun(const std::string& run, const Model& model, const std::string& tokenizer) {
  WriteRunDirectory(run, {RunTexts(model.config(), tokenizer),
                          TensorsOf(model.table(), {"", model.weights().data()}),
                          WeightsMetadata(model.config())});
}

}  // namespace denseformer

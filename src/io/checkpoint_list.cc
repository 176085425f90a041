// Which checkpoints there are, which of them are whole, which one to use.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/checkpoint.h"
#include "io/run_directory.h"
#include "io/weights.h"

namespace denseformer {

namespace fs = std::filesystem;

std::string CheckpointsDirectory(const std::string& run) { return run + "/checkpoints"; }

std::string CheckpointPath(const std::string& run, int64_t step) {
  return fmt::format("{}/step-{:08}", CheckpointsDirectory(run), step);
}

namespace {

struct ParsedName {
  int64_t step = 0;
  bool old = false;
};

// "step-00000010" or "step-00000010.old"; nothing for any other name.
std::optional<ParsedName> ParseName(std::string name) {
  ParsedName parsed;
  if (name.size() > 4 && name.ends_with(kOldSuffix)) {
    parsed.old = true;
    name.resize(name.size() - 4);
  }
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  if (digits.size() < 8 || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  parsed.step = std::stoll(digits);
  return parsed;
}

}  // namespace

std::vector<CheckpointInfo> ListCheckpoints(const std::string& run) {
  std::vector<std::pair<ParsedName, std::string>> found;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(CheckpointsDirectory(run), error)) {
    if (const auto parsed = ParseName(entry.path().filename().string())) {
      found.emplace_back(*parsed, entry.path().string());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    ThrowErrno(error.value(), "cannot list {}", CheckpointsDirectory(run));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first.step, !a.first.old) < std::tuple(b.first.step, !b.first.old);
  });
  std::vector<CheckpointInfo> checkpoints;
  for (const auto& [parsed, path] : found) checkpoints.push_back({parsed.step, path});
  return checkpoints;
}

Manifest CheckpointManifest(const std::string& path) {
  Manifest manifest = Manifest::Read(path);
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (manifest.files().count(name) == 0) {
      Throw(ErrorCode::kCorrupt, "{}/{}: does not name {}", path, kManifestFile, name);
    }
  }
  return manifest;
}

void VerifyCheckpoint(const std::string& path) { CheckpointManifest(path).Verify(path); }

bool LooksWhole(const std::string& path) {
  try {
    CheckpointManifest(path).Verify(path, /*sizes_only=*/true);
    return true;
  } catch (const Error&) {
    return false;
  }
}

CheckpointInfo NewestWholeCheckpoint(const std::string& run) {
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  if (checkpoints.empty()) {
    Throw(ErrorCode::kNotFound, "{}: no checkpoints (expected checkpoints/step-*)", run);
  }
  for (size_t i = checkpoints.size(); i-- > 0;) {
    try {
      VerifyCheckpoint(checkpoints[i].path);
      return checkpoints[i];
    } catch (const Error& error) {
      LogWarning("checkpoint of step {} is damaged: {}; {}", checkpoints[i].step, error.what(),
                 i > 0 ? fmt::format("trying the one of step {}", checkpoints[i - 1].step)
                       : "there is no earlier one");
    }
  }
  Throw(ErrorCode::kCorrupt, "{}: none of its {} checkpoints is whole", run, checkpoints.size());
}

std::string UnexplainedWeights(const std::string& run) {
  const std::string path = run + "/" + kModelFile;
  if (!FileExists(path)) return "";
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  std::string hash;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    std::error_code ignored;
    if (fs::equivalent(path, checkpoint.path + "/" + kModelFile, ignored)) return "";
    try {
      if (hash.empty()) hash = HashFile(path);
      if (CheckpointManifest(checkpoint.path).files().at(kModelFile).hash == hash) return "";
    } catch (const Error&) {
      continue;  // damaged: it explains nothing
    }
  }
  if (checkpoints.empty()) return path;
  try {
    VerifyWeights(SafetensorsFile(path));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) return "";
    throw;
  }
  return path;
}

std::vector<CheckpointInfo> ByValidationLoss(const std::vector<CheckpointInfo>& checkpoints) {
  std::vector<std::pair<double, CheckpointInfo>> rated;
  for (const CheckpointInfo& checkpoint : checkpoints) {
    if (!LooksWhole(checkpoint.path)) continue;
    try {
      const TrainerState state = ReadState(checkpoint.path);
      if (state.validation_loss && std::isfinite(*state.validation_loss)) {
        rated.emplace_back(*state.validation_loss, checkpoint);
      }
    } catch (const Error& error) {
      LogWarning("checkpoint of step {} is damaged: {}", checkpoint.step, error.what());
    }
  }
  // Of two with the same loss the newer one is first.
  std::reverse(rated.begin(), rated.end());
  std::stable_sort(rated.begin(), rated.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CheckpointInfo> sorted;
  for (const auto& [loss, checkpoint] : rated) sorted.push_back(checkpoint);
  return sorted;
}

std::optional<CheckpointInfo> BestCheckpoint(const std::string& run) {
  for (const CheckpointInfo& checkpoint : ByValidationLoss(ListCheckpoints(run))) {
    try {
      VerifyCheckpoint(checkpoint.path);
      return checkpoint;
    } catch (const Error& error) {
      LogWarning("checkpoint of step {} is damaged: {}; trying the next best", checkpoint.step,
                 error.what());
    }
  }
  return std::nullopt;
}

}  // namespace denseformer

#include "train/verify.h"

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "io/checkpoint.h"
#include "io/seal.h"
#include "train/json_lines.h"
#include "train/stored_options.h"
#include "train/train_state.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

// A part of a file of records that is known by its hash.
struct Recorded {
  uint64_t bytes = 0;
  std::string hash;
};

void CheckRecorded(const std::string& path, const Recorded& recorded, const std::string& when) {
  const std::string text = ReadFile(path, size_t{1} << 34);
  if (text.size() < recorded.bytes) {
    Throw(ErrorCode::kCorrupt, "{}: {} bytes, expected at least the {} that it had {}", path,
          text.size(), recorded.bytes, when);
  }
  if (HashBytes(text.data(), recorded.bytes) != recorded.hash) {
    Throw(ErrorCode::kCorrupt,
          "{}: its first {} bytes are not those that it had {}: it was altered", path,
          recorded.bytes, when);
  }
}

// What summary.json says about a file; none where there is no summary or it is damaged.
std::optional<Recorded> FromSummary(const std::string& run, const char* name) {
  const std::string path = run + "/" + kSummaryFile;
  if (!FileExists(path)) return std::nullopt;
  const std::string text = ReadFile(path);
  try {
    CheckSealedJson(text, path);
    const Json record = Json::parse(text).at("records").at(name);
    return Recorded{record.at("size").get<uint64_t>(), record.at("xxh3").get<std::string>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// The state of the newest checkpoint that is whole; none where there is none.
std::optional<RunState> NewestState(const std::string& run) {
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  for (size_t i = checkpoints.size(); i-- > 0;) {
    try {
      VerifyCheckpoint(checkpoints[i].path);
      return FromTrainerState(ReadState(checkpoints[i].path), checkpoints[i].path);
    } catch (const Error&) {
      continue;  // VerifyRun says it
    }
  }
  return std::nullopt;
}

void CheckRecords(const std::string& run, const char* name, int64_t step,
                  const Recorded& at_checkpoint) {
  const std::string path = run + "/" + name;
  if (!FileExists(path)) Throw(ErrorCode::kCorrupt, "{}: missing", path);
  CheckRecorded(path, at_checkpoint, fmt::format("at the checkpoint of step {}", step));
  if (const auto whole = FromSummary(run, name)) {
    CheckRecorded(path, *whole, "at the end of the run");
    if (FileSize(path) != whole->bytes) {
      Throw(ErrorCode::kCorrupt, "{}: {} bytes, expected {} as in {}", path, FileSize(path),
            whole->bytes, kSummaryFile);
    }
  }
  ReadJsonLines(path);
}

}  // namespace

Json RecordsToJson(const RunLog::Position& position) {
  return {{kMetricsFile, {{"size", position.metrics_bytes}, {"xxh3", position.metrics_hash}}},
          {kAlphasFile, {{"size", position.alphas_bytes}, {"xxh3", position.alphas_hash}}}};
}

std::vector<VerifyResult> VerifyTraining(const std::string& run_path) {
  const std::string run = FindRun(run_path);
  std::vector<VerifyResult> results;
  if (FileExists(run_path + "/" + kStateFile)) return results;
  const std::optional<RunState> state = NewestState(run);
  if (!state || state->log.metrics_hash.empty()) return results;
  const auto check = [&](const char* name, auto&& work) {
    const std::string path = run + "/" + name;
    VerifyResult& result = results.emplace_back(VerifyResult{path, ""});
    try {
      work(path);
    } catch (const Error& error) {
      result.problem = error.what();
    }
  };
  check(kOptionsFile, [](const std::string& path) { CheckSealedLines(ReadFile(path), path); });
  check(kMetricsFile, [&](const std::string&) {
    CheckRecords(run, kMetricsFile, state->step,
                 {state->log.metrics_bytes, state->log.metrics_hash});
  });
  check(kAlphasFile, [&](const std::string&) {
    CheckRecords(run, kAlphasFile, state->step, {state->log.alphas_bytes, state->log.alphas_hash});
  });
  if (FileExists(run + "/" + kSummaryFile)) {
    check(kSummaryFile, [](const std::string& path) { CheckSealedJson(ReadFile(path), path); });
  }
  return results;
}

}  // namespace denseformer

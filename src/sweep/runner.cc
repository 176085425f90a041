#include "sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "analysis/run_data.h"
#include "analysis/study.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signal.h"
#include "base/text.h"
#include "data/token_file.h"
#include "sweep/child_process.h"
#include "sweep/studies.h"
#include "train/json_lines.h"
#include "train/train_data.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 3;  // of a run whose process is killed
using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(50);  // between looks at the processes
constexpr auto kLook = std::chrono::seconds(2);         // between looks at their steps

struct DataHashes {
  std::string train, validation;
};

DataHashes HashData(const std::string& directory) {
  const TokenFile train(directory + "/" + kTrainFile),
      validation(directory + "/" + kValidationFile);
  return {Fingerprint(train), Fingerprint(validation)};
}

// The name of the CPU as the system has it; "" where it does not say.
std::string CpuName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos)
      return std::string(Trim(line.substr(colon + 1)));
  }
  return "";
}

bool IsFinished(const std::string& directory, const TrainOptions& options) {
  const std::string summary = directory + "/" + kSummaryFile;
  if (!FileExists(summary)) return false;
  const auto json = LedgerJson::parse(ReadFile(summary), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("steps", int64_t{-1}) == options.steps;
}

bool IsLocked(const std::string& directory) {
  if (!FileExists(directory + "/run.lock")) return false;
  try {
    const FileLock lock(directory + "/run.lock", directory);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kBusy) return true;
    throw;
  }
  return false;
}

// The last record of metrics.jsonl; null where there is none.
LedgerJson LastRecord(const std::string& directory) {
  const std::string path = directory + "/metrics.jsonl";
  if (!FileExists(path)) return nullptr;
  const std::vector<LedgerJson> records = ReadJsonLines(path);
  return records.empty() ? LedgerJson() : records.back();
}

std::string LastLine(const std::string& path) {
  if (!FileExists(path)) return "";
  std::string last;
  for (const std::string& line : Split(ReadFile(path), '\n')) {
    if (!Trim(line).empty()) last = std::string(Trim(line));
  }
  return last;
}

// A run on its way into the ledger: trained, then studied, then recorded.
struct Job {
  const PlannedRun* run = nullptr;
  std::string directory, log;
  std::unique_ptr<ChildProcess> process;  // null while another process holds the run
  bool studying = false;
  bool studies_failed = false;
  int attempts = 0;
};

class Runner {
 public:
  Runner(const std::vector<PlannedRun>& missing, const RunnerOptions& options, Ledger& ledger)
      : options_(options), ledger_(ledger), missing_(missing) {
    for (const PlannedRun& run : missing) total_ += run.work;
  }

  void Run() {
    CheckDataSets();
    FindRuns();
    Progress progress("sweep", "%", 100);
    Clock::time_point looked = {};
    size_t next = 0;
    while (next < missing_.size() || !jobs_.empty()) {
      while (next < missing_.size() && static_cast<int>(jobs_.size()) < options_.jobs &&
             !Interrupted()) {
        Begin(missing_[next++]);
      }
      std::erase_if(jobs_, [this](Job& job) { return Advance(job); });
      if (Clock::now() - looked >= kLook) {
        looked = Clock::now();
        progress.Update(100 * Share(), Note());
      }
      if (Interrupted()) StopAll();
      if (!jobs_.empty()) std::this_thread::sleep_for(kPause);
    }
    progress.Update(100, Note());
  }

 private:
  // Data sets are those of the ledger, where it has them.
  void CheckDataSets() {
    for (const PlannedRun& run : missing_) {
      if (hashes_.contains(run.data)) continue;
      if (run.options.data.empty()) {
        Throw(ErrorCode::kUsage,
              "sweep: {} runs are missing and the data set '{}' is not known; "
              "give --data {}=DIR (made by denseformer data prepare)",
              missing_.size(), run.data, run.data);
      }
      const DataHashes hashes = HashData(run.options.data);
      for (const LedgerJson& row : ledger_.rows()) {
        if (row["data"] != run.data || !row.contains("train_data")) continue;
        if (row["train_data"] == hashes.train && row["validation_data"] == hashes.validation)
          continue;
        Throw(ErrorCode::kInvalid,
              "sweep: {} is not the data set '{}' of {}: its token files have other hashes; give "
              "the right --data {}=DIR, or another --ledger",
              run.options.data, run.data, ledger_.path(), run.data);
      }
      hashes_[run.data] = hashes;
    }
  }

  // The run directories that are there, by key.
  void FindRuns() {
    for (const auto& entry : fs::directory_iterator(options_.runs)) {
      const std::string directory = entry.path().string();
      if (!FileExists(directory + "/" + kOptionsFile)) continue;
      const TrainOptions options = ReadStoredOptions(directory);
      for (const auto& [name, path] : options_.data) {
        std::error_code ignored;
        if (fs::equivalent(options.data, path, ignored)) {
          directories_[RunKey(options, name)] = directory;
        }
      }
    }
  }

  void Begin(const PlannedRun& run) {
    Job job;
    job.run = &run;
    const auto found = directories_.find(run.key);
    job.directory = found != directories_.end()
                        ? found->second
                        : options_.runs + "/" + run.name + "-" + run.key.substr(0, 8);
    job.log = options_.runs + "/" + run.name + "-" + run.key.substr(0, 8) + ".log";
    jobs_.push_back(std::move(job));
  }

  void Start(Job& job, const std::vector<std::string>& arguments) {
    std::vector<std::string> words = arguments;
    for (const std::string& word :
         {std::string("--threads"), std::to_string(options_.threads), std::string("--quiet")}) {
      words.push_back(word);
    }
    job.process = std::make_unique<ChildProcess>(options_.program, words, job.log, options_.nice);
  }

  void StartTraining(Job& job) {
    ++job.attempts;
    if (FileExists(job.directory + "/" + kOptionsFile)) {
      Start(job, {"train", job.directory, "--resume"});
      return;
    }
    const std::string config =
        options_.runs + "/" + job.run->name + "-" + job.run->key.substr(0, 8) + ".toml";
    WriteFileAtomic(config, ToToml(job.run->options));
    Start(job, {"train", job.directory, "--config", config});
  }

  // One step on the way; true where the job is done.
  bool Advance(Job& job) {
    if (job.process == nullptr) return Continue(job);
    const std::optional<ExitState> ended = job.process->Poll();
    if (!ended) return false;
    job.process.reset();
    if (job.studying) {
      if (ended->status != 0 || ended->signal != 0) {
        job.studies_failed = true;
        LogWarning("{}: the studies failed: {}", job.run->name, LastLine(job.log));
      }
      Record(job);
      return true;
    }
    if (Interrupted()) return true;
    // Somebody else's signal, which the process either obeyed or did not survive.
    const bool killed = ended->signal != 0 || ended->status == ExitStatus(ErrorCode::kInterrupted);
    if ((ended->status != 0 && !killed) || (killed && job.attempts >= kMostAttempts)) {
      RecordFailure(job, killed ? fmt::format("killed {} times", job.attempts) : LastLine(job.log));
      return true;
    }
    if (killed) LogWarning("{}: killed; resuming from its checkpoint", job.run->name);
    return Continue(job);
  }

  // What comes next for a job without a process; true where it is done.
  bool Continue(Job& job) {
    if (IsLocked(job.directory)) return false;
    if (!IsFinished(job.directory, job.run->options)) {
      if (!Interrupted()) StartTraining(job);
      return Interrupted();
    }
    if (job.run->studies.empty()) {
      Record(job);
      return true;
    }
    job.studying = true;
    Start(job, {"analyze", job.directory, "--study", Join(job.run->studies, ","), "--tokens",
                std::to_string(options_.study_tokens)});
    return false;
  }

  void Record(const Job& job) {
    const LedgerJson* there = ledger_.Find(job.run->key);
    LedgerJson row = RowOfRun(*job.run, job.directory, options_);
    if (there != nullptr && (*there)["status"] == "finished") {
      if (row.contains("studies"))
        ledger_.Append({{"key", row["key"]}, {"studies", row["studies"]}});
    } else {
      const DataHashes& hashes = hashes_.at(job.run->data);
      row["train_data"] = hashes.train;
      row["validation_data"] = hashes.validation;
      ledger_.Append(row);
    }
    Done(job);
    LogInfo("{}: {}", job.run->name,
            row["status"] == "finished" ? fmt::format("loss {:.4f}", row["loss"].get<double>())
                                        : row["status"].get<std::string>());
  }

  void RecordFailure(const Job& job, const std::string& problem) {
    const LedgerJson last = LastRecord(job.directory);
    const bool diverged = last.is_object() && last.value("skipped", false);
    LedgerJson row = {{"key", job.run->key},
                      {"data", job.run->data},
                      {"seed", job.run->options.seed},
                      {"status", diverged ? "diverged" : "failed"},
                      {"options", CourseOptions(job.run->options)},
                      {"error", problem},
                      {"version", options_.version}};
    if (last.is_object()) row["steps"] = last.value("step", int64_t{0});
    ledger_.Append(row);
    Done(job);
    LogWarning("{}: {}: {}", job.run->name, row["status"].get<std::string>(), problem);
  }

  void Done(const Job& job) {
    finished_work_ += job.run->work;
    ++finished_;
    // Without its directory a run would have to be trained again for the studies that it lacks.
    if (options_.remove_finished && !job.studies_failed) RemoveTree(job.directory);
  }

  void StopAll() {
    for (Job& job : jobs_) {
      if (job.process != nullptr) job.process->Stop();
    }
    jobs_.clear();  // waits for each
    Throw(ErrorCode::kInterrupted,
          "sweep: stopped by a signal; {} of {} missing runs are done, the others continue from "
          "their checkpoints when it is started again",
          finished_, missing_.size());
  }

  static int64_t StepOf(const Job& job) {
    const LedgerJson last = LastRecord(job.directory);
    return last.is_object() ? last.value("step", int64_t{0}) : 0;
  }

  double Share() const {
    double work = finished_work_;
    for (const Job& job : jobs_) {
      work += job.run->work * static_cast<double>(StepOf(job)) /
              static_cast<double>(job.run->options.steps);
    }
    return total_ > 0 ? work / total_ : 1;
  }

  std::string Note() const {
    std::string note = fmt::format("{} of {} runs", finished_, missing_.size());
    for (const Job& job : jobs_) note += "; " + job.run->name;
    return note;
  }

  const RunnerOptions& options_;
  Ledger& ledger_;
  const std::vector<PlannedRun>& missing_;
  std::map<std::string, DataHashes> hashes_;
  std::map<std::string, std::string> directories_;  // by key
  std::vector<Job> jobs_;
  double total_ = 0, finished_work_ = 0;
  size_t finished_ = 0;
};

}  // namespace

LedgerJson RowOfRun(const PlannedRun& run, const std::string& directory,
                    const RunnerOptions& options) {
  const RunData data = ReadRun(directory);
  const LedgerJson& summary = data.summary;
  if (!summary.is_object() || !summary.contains("validation")) {
    Throw(ErrorCode::kCorrupt, "{}: expected the summary of a finished run with a final validation",
          directory);
  }
  const LedgerJson& validation = summary["validation"];
  const bool finite = validation["loss"].is_number() && validation["perplexity"].is_number();
  LedgerJson row = {{"key", run.key},
                    {"data", run.data},
                    {"seed", run.options.seed},
                    {"status", finite ? "finished" : "diverged"},
                    {"options", CourseOptions(run.options)},
                    {"loss", validation["loss"]},
                    {"perplexity", validation["perplexity"]},
                    {"accuracy", validation["accuracy"]},
                    {"validation_tokens", validation["tokens"]}};
  for (const char* key : {"parameters", "dwa_weights", "steps", "tokens", "skipped_steps",
                          "tokens_per_second", "seconds", "threads", "cpu"}) {
    row[key] = summary.at(key);
  }
  row["cpu_name"] = CpuName();
  row["version"] = options.version;
  row["curve"] = {{"step", data.validation_loss.step}, {"loss", data.validation_loss.value}};
  for (const std::string& name : run.studies) {
    const auto found = data.studies.find(name);
    if (found == data.studies.end()) continue;
    CheckStudy(*FindStudy(name), found->second, directory);
    row["studies"][name] = CondenseStudy(name, found->second);
  }
  return row;
}

void RunMissing(const std::vector<PlannedRun>& missing, const RunnerOptions& options,
                Ledger& ledger) {
  if (missing.empty()) return;
  std::error_code error;
  fs::create_directories(options.runs, error);
  if (error) ThrowErrno(error.value(), "cannot make the directory {}", options.runs);
  const FileLock runs_lock(options.runs + "/sweep.lock", "directory of runs " + options.runs);
  const FileLock ledger_lock(ledger.path(), "ledger " + ledger.path());
  Runner(missing, options, ledger).Run();
}

}  // namespace denseformer

#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/signal.h"
#include "base/text.h"
#include "data/batches.h"
#include "io/run_directory.h"
#include "train/diagnosis.h"
#include "train/evaluate.h"
#include "train/gemm_rate.h"
#include "train/plan.h"
#include "train/run_log.h"
#include "train/summary.h"
#include "train/train_data.h"
#include "train/train_state.h"
#include "train/train_step.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

BatchOptions BatchesOf(const TrainOptions& options, BatchOrder order, uint64_t seed) {
  return {options.model.seq_len, options.batch_size, seed, order};
}

// The sample of the validation stream is the same for every run, whatever its seed.
constexpr uint64_t kSampleSeed = 0;

// Refuses to begin where a run is, and to resume where none is.
void CheckPlace(const TrainRequest& request) {
  CheckNoFile(request.run);
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(request.run);
  if (!request.resume && !checkpoints.empty()) {
    Throw(ErrorCode::kUsage,
          "train: {} holds a run already (newest checkpoint: step {}); resume it with --resume, or "
          "choose another directory",
          request.run, checkpoints.back().step);
  }
  const std::string metrics = request.run + "/metrics.jsonl";
  if (checkpoints.empty() && FileExists(metrics) && FileSize(metrics) > 0) {
    Throw(ErrorCode::kCorrupt,
          "train: {} has recorded steps but no checkpoint; nothing to resume, and starting "
          "again would overwrite it: move it away",
          request.run);
  }
}

// Checkpoints after `step` are damaged, or the run would resume from them. Under another name none
// of them counts as the newest one when old ones are removed.
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

// What a run reads and where it writes; made before the directory changes, so that whatever is
// wrong in the request is found first.
struct TrainInputs {
  explicit TrainInputs(const TrainOptions& options)
      : data(options.data, options.model.vocab_size),
        batches(data.train, BatchesOf(options, ParseBatchOrder(options.order),
                                      static_cast<uint64_t>(options.seed))),
        sample(data.validation, BatchesOf(options, BatchOrder::kRandom, kSampleSeed)) {}

  TrainData data;
  TrainBatches batches, sample;
};

class Trainer {
 public:
  Trainer(const TrainRequest& request, const TrainInputs& inputs, RunWriter& writer);
  // Begins the run, or resumes it from its newest whole checkpoint.
  void Open();
  Json Run();

 private:
  void Begin();
  void Resume();
  void CheckData();
  void TakeStep();
  void Skip(int64_t step, double loss);
  // Validates on the sample where due; true where the loss is the best so far.
  bool Validate();
  void AfterStep();
  void Save();
  Json Finish();
  std::string ProgressNote() const;
  Batch PassBatch() const {
    return {tokens_, targets_, options_.pass_sequences(), options_.model.seq_len};
  }
  bool Finished() const {
    return state_.step == options_.steps && FileExists(request_.run + "/" + kSummaryFile);
  }
  double Seconds() const { return state_.seconds + Since(begin_); }

  const TrainRequest& request_;
  const TrainOptions& options_;
  const TrainData& data_;
  const TrainBatches &batches_, &sample_;
  RunWriter& writer_;
  Model model_;
  Activations activations_;
  TrainStep step_;
  Schedule schedule_;
  std::vector<int64_t> alpha_steps_;
  std::vector<int32_t> tokens_, targets_;  // of the newest pass
  GemmRate gemm_rate_;
  Clock::time_point begin_ = Clock::now();
  RunState state_;
  std::optional<RunLog> log_;
  StepRecord last_;
  double smooth_seconds_ = 0;  // of a step
};

Trainer::Trainer(const TrainRequest& request, const TrainInputs& inputs, RunWriter& writer)
    : request_(request),
      options_(request.options),
      data_(inputs.data),
      batches_(inputs.batches),
      sample_(inputs.sample),
      writer_(writer),
      model_(options_.model, options_.compute(), ModelUse::kTraining),
      activations_(model_, options_.pass_sequences(), options_.model.seq_len, ModelUse::kTraining,
                   options_.recompute),
      step_(model_, activations_, options_),
      schedule_(options_.MakeSchedule()),
      alpha_steps_(options_.AlphaSteps()),
      tokens_(static_cast<size_t>(activations_.max_rows())),
      targets_(tokens_.size()) {}

void Trainer::Open() {
  gemm_rate_ = MeasureGemmRate(options_.model, model_.compute(), activations_.max_rows());
  if (options_.recompute) {
    LogInfo("recompute: {}", DescribeRecompute(EffectOfRecompute(options_.model, options_.compute(),
                                                                 options_.pass_sequences(),
                                                                 options_.model.seq_len)));
  }
  // Another process may have begun the run before this one had the lock.
  CheckPlace(request_);
  if (ListCheckpoints(request_.run).empty()) {
    Begin();
  } else {
    Resume();
  }
}

void Trainer::Begin() {
  if (request_.resume) {
    LogWarning("{} was stopped before its first checkpoint; it starts at step 0", request_.run);
  }
  WriteRunFiles(writer_, options_.model, data_.tokenizer ? data_.tokenizer->ToJson() : "");
  WriteFileAtomic(request_.run + "/" + kOptionsFile, ToToml(options_));
  model_.Initialize(static_cast<uint64_t>(options_.seed));
  CheckData();
  log_.emplace(request_.run, options_, RunLog::Position{});
  log_->Alphas(0, model_);
  Save();
}

void Trainer::Resume() {
  const CheckpointInfo newest = NewestWholeCheckpoint(request_.run);
  PutDamagedAside(request_.run, newest.step);
  state_ = FromTrainerState(LoadCheckpoint(newest.path, model_, step_.optimizer().moments()),
                            newest.path);
  if (state_.step > options_.steps) {
    Throw(ErrorCode::kUsage, "resume: the run is at step {}, beyond train.steps = {}", state_.step,
          options_.steps);
  }
  step_.optimizer().SetUpdates(state_.updates, state_.dwa_updates);
  CheckData();
  FinishSave(writer_, newest, {options_.save_keep, options_.save_best});
  if (Finished()) return;
  WriteFileAtomic(request_.run + "/" + kOptionsFile, ToToml(options_));
  log_.emplace(request_.run, options_, state_.log);
  LogInfo("resumes at step {} of {}", state_.step, options_.steps);
}

void Trainer::CheckData() {
  const std::string train = Fingerprint(data_.train), validation = Fingerprint(data_.validation);
  const bool changed = !state_.train_data.empty() &&
                       (train != state_.train_data || validation != state_.validation_data);
  const auto names_data = [](const std::string& key) {
    return FindOption("--force", key).key == "data.path";
  };
  if (changed && std::none_of(request_.forced.begin(), request_.forced.end(), names_data)) {
    Throw(ErrorCode::kUsage,
          "resume: the token files of {} are not those that the run began with; give the right "
          "--data, or allow it with --force data.path",
          options_.data);
  }
  state_.train_data = train;
  state_.validation_data = validation;
}

void Trainer::Skip(int64_t step, double loss) {
  ++state_.skipped;
  ++state_.bad_in_row;
  std::string bad;
  const bool enough = state_.bad_in_row >= options_.max_bad_steps;
  if (enough) {
    bad = FirstBadTensor(model_, PassBatch(), activations_);
  }
  if (!enough) {
    LogWarning("step {}: loss or gradient not finite (loss {}); skipped", step + 1, loss);
    return;
  }
  Throw(ErrorCode::kNonFinite,
        "train: loss or gradient not finite in {} steps in a row, up to step {} (loss {}); first "
        "bad tensor: {}; newest checkpoint: step {}; lower optimizer.lr, or set optimizer.clip",
        state_.bad_in_row, step + 1, loss, bad, ListCheckpoints(request_.run).back().step);
}

void Trainer::TakeStep() {
  const Clock::time_point begin = Clock::now();
  const int64_t step = state_.step;
  const double rate = schedule_.Rate(step);
  const StepResult result = step_.Run(step, rate, [this](int64_t at, int pass) {
    const int64_t count = options_.pass_sequences();
    batches_.Fill(at, {pass * count, count}, tokens_.data(), targets_.data());
    return PassBatch();
  });
  if (result.updated) {
    state_.bad_in_row = 0;
  } else {
    Skip(step, result.loss);
  }
  ++state_.step;
  state_.validation_loss.reset();
  const double seconds = Since(begin);
  state_.step_seconds += seconds;
  smooth_seconds_ = smooth_seconds_ == 0 ? seconds : 0.9 * smooth_seconds_ + 0.1 * seconds;
  const int64_t tokens = int64_t{options_.batch_size} * options_.model.seq_len;
  last_ = {state_.step,
           state_.step * tokens,
           batches_.EpochsAt(state_.step),
           result.loss,
           rate,
           result.norm,
           !result.updated,
           Seconds(),
           static_cast<double>(tokens) / seconds,
           gemm_rate_.Share(tokens, seconds)};
}

bool Trainer::Validate() {
  if (!state_.eval_pending) return false;
  EvalResult result;
  try {
    result = EvaluateSample(model_, sample_, options_.eval_batches, activations_,
                            [](double) { return !Interrupted(); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    return false;  // stays due
  }
  state_.eval_pending = false;
  log_->Validation(state_.step, result, Seconds());
  if (!std::isfinite(result.loss)) return false;
  state_.validation_loss = result.loss;
  const bool improved = !state_.best || result.loss < state_.best->loss;
  if (improved) state_.best = Best{state_.step, result.loss};
  LogInfo("step {}: validation loss {:.4f}, perplexity {:.2f}{}", state_.step, result.loss,
          result.perplexity(), improved ? " (best)" : "");
  return improved;
}

void Trainer::AfterStep() {
  const bool last = state_.step == options_.steps;
  const bool improved = Validate();
  const bool due = options_.save_every > 0 && state_.step % options_.save_every == 0;
  if (last || due || Interrupted() || (improved && options_.save_best)) Save();
  if (Interrupted()) {
    Throw(
        ErrorCode::kInterrupted,
        "train: stopped by a signal after step {} of {}; saved: resume with 'denseformer train {} "
        "--resume'",
        state_.step, options_.steps, request_.run);
  }
}

void Trainer::Save() {
  RunState state = state_;
  state.updates = step_.optimizer().updates();
  state.dwa_updates = step_.optimizer().dwa_updates();
  state.seconds = Seconds();
  state.log = log_->Sync(state_.step);
  SaveCheckpoint(writer_, model_, step_.optimizer().moments(), ToTrainerState(state),
                 {options_.save_keep, options_.save_best});
}

std::string Trainer::ProgressNote() const {
  const int64_t tokens = int64_t{options_.model.seq_len} * options_.batch_size;
  return fmt::format("loss {:.3f}, {}, {:.0f} % of GEMM rate", last_.loss,
                     HumanRate(static_cast<double>(tokens) / smooth_seconds_, "tokens/s"),
                     100 * gemm_rate_.Share(tokens, smooth_seconds_));
}

Json Trainer::Run() {
  const std::string summary = request_.run + "/" + kSummaryFile;
  if (Finished()) {
    LogInfo("{} has finished all {} steps already", request_.run, options_.steps);
    return Json::parse(ReadFile(summary));
  }
  RemoveFile(summary);
  if (state_.eval_pending || Interrupted()) AfterStep();
  {
    Progress progress("train", "steps", static_cast<double>(options_.steps),
                      static_cast<double>(state_.step));
    while (state_.step < options_.steps) {
      TakeStep();
      if (state_.step % options_.log_every == 0 || state_.step == options_.steps || last_.skipped) {
        log_->Step(last_);
      }
      if (std::binary_search(alpha_steps_.begin(), alpha_steps_.end(), state_.step)) {
        log_->Alphas(state_.step, model_);
      }
      state_.eval_pending = options_.eval_every > 0 && (state_.step % options_.eval_every == 0 ||
                                                        state_.step == options_.steps);
      progress.Update(static_cast<double>(state_.step), ProgressNote());
      AfterStep();
    }
  }
  return Finish();
}

Json Trainer::Finish() {
  EvalResult final;
  if (options_.eval_final) {
    Progress progress("validation", "%", 100);
    EvalOptions eval;
    eval.progress = [&progress](double share) {
      progress.Update(100 * share);
      return !Interrupted();
    };
    final = EvaluateStream(model_, data_.validation, activations_, eval,
                           data_.tokenizer ? &*data_.tokenizer : nullptr);
    log_->Final(state_.step, final, Seconds());
  }
  SummaryInput input = {options_, state_, model_, final};
  input.seconds = Seconds();
  input.gemm_share = gemm_rate_.Share(
      int64_t{options_.batch_size} * options_.model.seq_len * state_.step, state_.step_seconds);
  input.epochs = batches_.EpochsAt(state_.step);
  // Once more, should RUN/model.safetensors have failed at the last save.
  FinishSave(writer_, ListCheckpoints(request_.run).back(),
             {options_.save_keep, options_.save_best});
  const Json summary = MakeSummary(input);
  WriteFileAtomic(request_.run + "/" + kSummaryFile, summary.dump(2) + "\n");
  return summary;
}

}  // namespace

Json Train(const TrainRequest& request) {
  CheckPlace(request);
  const TrainInputs inputs(request.options);
  RequireTrainingMemory(request.options);
  RunWriter writer(request.run);
  request.checked();
  Trainer trainer(request, inputs, writer);
  trainer.Open();
  return trainer.Run();
}

TrainOptions ReadStoredOptions(const std::string& run) {
  CheckNoFile(run);
  const std::string path = run + "/" + kOptionsFile;
  if (!FileExists(path)) {
    const std::string found = FileExists(run) ? FindRun(run) : run;
    if (FileExists(found + "/" + kOptionsFile)) {
      Throw(ErrorCode::kUsage, "train: {} is a checkpoint; give its run, {}", run, found);
    }
    Throw(ErrorCode::kNotFound, "train: nothing to resume at {} (no {}); begin it without --resume",
          run, kOptionsFile);
  }
  return ParseStoredOptions(ReadFile(path), path);
}

}  // namespace denseformer

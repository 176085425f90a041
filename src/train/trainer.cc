#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/signal.h"
#include "base/text.h"
#include "data/batches.h"
#include "io/run_directory.h"
#include "io/seal.h"
#include "train/evaluate.h"
#include "train/gemm_rate.h"
#include "train/init.h"
#include "train/pipeline_schedule.h"
#include "train/plan.h"
#include "train/rank_model.h"
#include "train/resume_checks.h"
#include "train/run_log.h"
#include "train/run_place.h"
#include "train/summary.h"
#include "train/train_data.h"
#include "train/train_state.h"
#include "train/train_step.h"
#include "train/verify.h"

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

// What a run reads and where it writes; made before the directory changes, so that whatever is
// wrong in the request is found first.
struct TrainInputs {
  explicit TrainInputs(const TrainOptions& options)
      : data(options.data, options.model.vocab_size),
        batches(data.train, BatchesOf(options, ParseBatchOrder(options.order),
                                      static_cast<uint64_t>(options.seed))),
        sample(data.validation, BatchesOf(options, BatchOrder::kRandom, kSampleSeed)),
        tokenizer(options.init.empty() ? data.tokenizer
                                       : InitTokenizer(options.init, data.tokenizer)) {}

  TrainData data;
  TrainBatches batches, sample;
  std::optional<Tokenizer> tokenizer;  // of the run
};

// Before an error that all ranks have: rank 0 throws it and ends the others, which wait here.
void WaitForFirst(Communicator& world) {
  if (!world.first()) Barrier(world);
}

// The rate of all ranks together.
GemmRate TogetherRate(Communicator& world, const GemmRate& mine) {
  double tokens_per_second = 0;
  for (const double seconds : Exchange(world, mine.seconds_per_token)) {
    tokens_per_second += 1 / seconds;
  }
  return {1 / tokens_per_second};
}

// One rank of a run. Rank 0 reads and writes the run's directory; the others have what it tells
// them. Whatever ranks decide together (to stop, to validate, to save) follows from values that
// are the same on all.
class Trainer {
 public:
  // `writer` is null on all ranks but the first.
  Trainer(const TrainRequest& request, const TrainInputs& inputs, const RankGrid& grid,
          RunWriter* writer);
  // Begins the run, or resumes it from its newest whole checkpoint.
  void Open();
  Json Run();

 private:
  void Begin();
  void Resume();
  void TakeStep();
  // Counts a step without an update; throws where there were too many in a row.
  void Skip(int64_t step, const StepResult& result);
  void LogStep();
  std::string ProgressNote() const;
  // Validates and saves where due; throws kInterrupted where a signal has come.
  void AfterStep();
  // Validates on the sample where due; true where the loss is the best so far.
  bool Validate();
  EvalOptions Evaluation(std::function<void(double)> progress);
  void Save();
  Json Finish();
  // Whether a signal has come to any rank; asks the others.
  bool AskToStop() { return stop_ = stop_ || AnyRank(world_, Interrupted()); }
  Batch PassBatch() const {
    return {tokens_,
            targets_,
            rank_.share().count,
            options_.model.seq_len,
            rank_.share().first,
            options_.pass_sequences() * options_.model.seq_len};
  }
  double Seconds() const { return state_.seconds + Since(begin_); }

  const TrainRequest& request_;
  const TrainOptions& options_;
  const TrainData& data_;
  const TrainBatches &batches_, &sample_;
  const std::optional<Tokenizer>& tokenizer_;
  const RankGrid& grid_;
  Communicator& world_;
  RunWriter* writer_;
  RankModel rank_;
  Schedule schedule_;
  std::vector<int64_t> alpha_steps_;
  std::vector<int32_t> tokens_, targets_;  // of the newest pass
  GemmRate gemm_rate_;
  Clock::time_point begin_ = Clock::now();
  RunState state_;
  bool finished_ = false;      // with a summary, before this call
  bool stop_ = false;          // a signal has come to some rank
  std::optional<RunLog> log_;  // rank 0
  StepRecord last_;
  double smooth_seconds_ = 0;  // of a step
};

Trainer::Trainer(const TrainRequest& request, const TrainInputs& inputs, const RankGrid& grid,
                 RunWriter* writer)
    : request_(request),
      options_(request.options),
      data_(inputs.data),
      batches_(inputs.batches),
      sample_(inputs.sample),
      tokenizer_(inputs.tokenizer),
      grid_(grid),
      world_(grid.world()),
      writer_(writer),
      rank_(options_, grid),
      schedule_(options_.MakeSchedule()),
      alpha_steps_(options_.AlphaSteps()),
      tokens_(static_cast<size_t>(rank_.activations().max_rows())),
      targets_(tokens_.size()) {}

void Trainer::Open() {
  gemm_rate_ = TogetherRate(world_, MeasureGemmRate(options_.model, rank_.model().compute(),
                                                    rank_.activations().max_rows()));
  rank_.LogSetup();
  // Another process may have begun the run before this one had the lock.
  if (world_.first()) CheckPlace(request_.run, request_.resume);
  const bool begun = AnyRank(world_, world_.first() && !ListCheckpoints(request_.run).empty());
  if (begun) {
    Resume();
  } else {
    Begin();
  }
}

void Trainer::Begin() {
  if (request_.resume) {
    LogWarning("{} was stopped before its first checkpoint; it starts at step 0", request_.run);
  }
  const auto seed = static_cast<uint64_t>(options_.seed);
  if (options_.init.empty()) {
    rank_.model().Initialize(seed);
  } else {
    InitializeFrom(options_.init, seed, rank_.model());
    LogInfo("starts from the weights of {}", options_.init);
    state_.eval_pending = options_.eval_every > 0;  // what they are worth before the first step
  }
  // Another host's math library may round differently.
  rank_.SendWeights();
  CheckData(request_, data_, state_);
  if (writer_ != nullptr) {
    WriteRunFiles(*writer_, options_.model, tokenizer_ ? tokenizer_->ToJson() : "");
    WriteStoredOptions(request_.run, options_);
    log_.emplace(request_.run, options_, RunLog::Position{});
    log_->Alphas(0, rank_.model());
  }
  Save();
}

void Trainer::Resume() {
  CheckpointInfo newest;
  if (writer_ != nullptr) {
    newest = NewestWholeCheckpoint(request_.run);
  }
  state_ = FromTrainerState(rank_.Load(newest.path), newest.path);
  const bool changed = CheckCourse(request_, state_);
  if (writer_ != nullptr) PutDamagedAside(request_.run, newest.step);
  if (state_.step > options_.steps) {
    Throw(ErrorCode::kUsage,
          "resume: the run is at step {}, beyond train.steps = {}; give more --steps", state_.step,
          options_.steps);
  }
  rank_.step().optimizer().SetUpdates(state_.updates, state_.dwa_updates);
  CheckData(request_, data_, state_);
  if (writer_ != nullptr) FinishSave(*writer_, newest, {options_.save_keep, options_.save_best});
  finished_ = AnyRank(world_, world_.first() && state_.step == options_.steps &&
                                  FileExists(request_.run + "/" + kSummaryFile));
  if (finished_) return;
  if (writer_ != nullptr) {
    WriteStoredOptions(request_.run, options_);
    log_.emplace(request_.run, options_, state_.log);
  }
  if (changed) Save();  // so that the checkpoint knows what was forced
  LogInfo("resumes at step {} of {}", state_.step, options_.steps);
}

Json Trainer::Run() {
  const std::string summary = request_.run + "/" + kSummaryFile;
  if (finished_) {
    LogInfo("{} has finished all {} steps already", request_.run, options_.steps);
    return world_.first() ? Json::parse(ReadFile(summary)) : Json();
  }
  if (writer_ != nullptr) RemoveFile(summary);
  if (state_.eval_pending || AskToStop()) AfterStep();
  {
    Progress progress("train", "steps", static_cast<double>(options_.steps),
                      static_cast<double>(state_.step));
    while (state_.step < options_.steps) {
      TakeStep();
      if (log_) LogStep();
      state_.eval_pending = options_.eval_every > 0 && (state_.step % options_.eval_every == 0 ||
                                                        state_.step == options_.steps);
      progress.Update(static_cast<double>(state_.step), ProgressNote());
      AfterStep();
    }
  }
  return Finish();
}

void Trainer::TakeStep() {
  const Clock::time_point begin = Clock::now();
  const int64_t step = state_.step;
  const double rate = schedule_.Rate(step);
  const StepResult result = rank_.step().Run(step, rate, [this](int64_t at, int pass) {
    const int64_t first = pass * options_.pass_sequences() + rank_.share().first;
    batches_.Fill(at, {first, rank_.share().count}, tokens_.data(), targets_.data());
    return PassBatch();
  });
  if (result.updated) {
    state_.bad_in_row = 0;
  } else {
    Skip(step, result);
  }
  ++state_.step;
  state_.validation_loss.reset();
  const double seconds = Since(begin);
  state_.step_seconds += seconds;
  smooth_seconds_ = smooth_seconds_ == 0 ? seconds : 0.9 * smooth_seconds_ + 0.1 * seconds;
  const int64_t tokens = int64_t{options_.batch_size} * options_.model.seq_len;
  gemm_rate_.Observe(tokens, seconds);
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

void Trainer::Skip(int64_t step, const StepResult& result) {
  ++state_.skipped;
  ++state_.bad_in_row;
  if (state_.bad_in_row < options_.max_bad_steps) {
    LogWarning("step {}: loss or gradient not finite (loss {}); skipped", step + 1, result.loss);
    return;
  }
  const std::string bad = rank_.FirstBadTensor(PassBatch(), result);
  WaitForFirst(world_);
  Throw(ErrorCode::kNonFinite,
        "train: loss or gradient not finite in {} steps in a row, up to step {} (loss {}); first "
        "bad tensor: {}; newest checkpoint: step {}; lower optimizer.lr, or set optimizer.clip",
        state_.bad_in_row, step + 1, result.loss, bad, ListCheckpoints(request_.run).back().step);
}

void Trainer::LogStep() {
  if (state_.step % options_.log_every == 0 || state_.step == options_.steps || last_.skipped) {
    log_->Step(last_);
  }
  if (std::binary_search(alpha_steps_.begin(), alpha_steps_.end(), state_.step)) {
    log_->Alphas(state_.step, rank_.model());
  }
}

std::string Trainer::ProgressNote() const {
  const int64_t tokens = int64_t{options_.model.seq_len} * options_.batch_size;
  return fmt::format("loss {:.3f}, {}, {:.0f} % of GEMM rate", last_.loss,
                     HumanRate(static_cast<double>(tokens) / smooth_seconds_, "tokens/s"),
                     100 * gemm_rate_.Share(tokens, smooth_seconds_));
}

void Trainer::AfterStep() {
  const bool last = state_.step == options_.steps;
  const bool improved = Validate();
  const bool due = options_.save_every > 0 && state_.step % options_.save_every == 0;
  const bool stop = AskToStop();
  if (last || due || stop || (improved && options_.save_best)) Save();
  if (stop) {
    WaitForFirst(world_);
    Throw(
        ErrorCode::kInterrupted,
        "train: stopped by a signal after step {} of {}; saved: resume with 'denseformer train {} "
        "--resume'",
        state_.step, options_.steps, request_.run);
  }
}

bool Trainer::Validate() {
  if (!state_.eval_pending) return false;
  EvalResult result;
  try {
    result = EvaluateSample(rank_.model(), sample_, options_.eval_batches, rank_.activations(),
                            Evaluation({}));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    return false;  // stays due
  }
  state_.eval_pending = false;
  if (log_) log_->Validation(state_.step, result, Seconds());
  if (!std::isfinite(result.loss)) return false;
  state_.validation_loss = result.loss;
  const bool improved = !state_.best || result.loss < state_.best->loss;
  if (improved) state_.best = Best{state_.step, result.loss};
  LogInfo("step {}: validation loss {:.4f}, perplexity {:.2f}{}", state_.step, result.loss,
          result.perplexity(), improved ? " (best)" : "");
  return improved;
}

EvalOptions Trainer::Evaluation(std::function<void(double)> progress) {
  EvalOptions options;
  options.progress = [this, progress = std::move(progress)](double share) {
    if (progress) progress(share);
    return !AskToStop();
  };
  options.group = &grid_.copies();
  options.pipeline = rank_.pipeline();
  return options;
}

void Trainer::Save() {
  rank_.Save([this](const Model& model, const Moments& moments) {
    RunState state = state_;
    state.updates = rank_.step().optimizer().updates();
    state.dwa_updates = rank_.step().optimizer().dwa_updates();
    state.seconds = Seconds();
    state.log = log_->Sync(state_.step);
    state.course = CourseOf(options_);
    state.cuts = grid_.cuts();
    SaveCheckpoint(*writer_, model, moments, ToTrainerState(state),
                   {options_.save_keep, options_.save_best});
  });
}

Json Trainer::Finish() {
  EvalResult final;
  if (options_.eval_final) {
    Progress progress("validation", "%", 100);
    final = EvaluateStream(rank_.model(), data_.validation, rank_.activations(),
                           Evaluation([&](double share) { progress.Update(100 * share); }),
                           tokenizer_ ? &*tokenizer_ : nullptr);
    if (log_) log_->Final(state_.step, final, Seconds());
  }
  const std::vector<int64_t> peak_memory = Exchange(world_, PeakMemory());
  if (writer_ == nullptr) return Json();
  SummaryInput input = {options_, state_, rank_.model(), final};
  input.seconds = Seconds();
  input.gemm_share = gemm_rate_.Share(
      int64_t{options_.batch_size} * options_.model.seq_len * state_.step, state_.step_seconds);
  input.epochs = batches_.EpochsAt(state_.step);
  input.ranks = world_.size();
  input.peak_memory = peak_memory;
  input.stages = static_cast<int>(grid_.plan().size());
  if (rank_.data_parallel() != nullptr) input.communication = &rank_.data_parallel()->cost();
  // Once more, should RUN/model.safetensors have failed at the last save.
  FinishSave(*writer_, ListCheckpoints(request_.run).back(),
             {options_.save_keep, options_.save_best});
  Json summary = MakeSummary(input);
  summary["records"] = RecordsToJson(log_->Sync(state_.step));
  const std::string text = SealJson(summary);
  WriteFileAtomic(request_.run + "/" + kSummaryFile, text);
  return Json::parse(text);
}

// Without given cuts a run resumes with those that it had, so that it continues bit for bit.
PipelineRequest ResolvePipeline(const TrainRequest& request, Communicator& world) {
  PipelineRequest pipeline = request.pipeline;
  if (!request.resume || pipeline.stages == 1 || !pipeline.cuts.empty()) return pipeline;
  const std::string stored =
      BroadcastText(world, world.first() ? StoredCuts(request.run, pipeline.stages) : "");
  if (!stored.empty()) pipeline.cuts = ParseCuts(stored);
  return pipeline;
}

}  // namespace

Json Train(const TrainRequest& request, Communicator& world) {
  RequireSame(world, "options",
              fmt::format("{}pipeline = {}\n", ToToml(request.options), request.pipeline.stages));
  if (world.first()) CheckPlace(request.run, request.resume);
  const TrainInputs inputs(request.options);
  RequireSame(world, "data",
              Fingerprint(inputs.data.train) + "\n" + Fingerprint(inputs.data.validation));
  const RankGrid grid(world, request.options, ResolvePipeline(request, world));
  const int64_t sequences = PassShare(request.options.pass_sequences(), grid.copies()).count;
  const Stage& stage = grid.stage();
  const StageUse use = {&stage, PipelineSlots(stage.index, stage.count, request.options.accumulate),
                        grid.copies().size()};
  RequireTrainingMemory(request.options, sequences, use);
  std::optional<RunWriter> writer;
  if (world.first()) writer.emplace(request.run);
  request.checked(
      PlanRun(request.options, inputs.data, inputs.batches, sequences,
              StageMemory(request.options.model, request.options.compute(), sequences,
                          request.options.model.seq_len, request.options.recompute, use)));
  Trainer trainer(request, inputs, grid, writer ? &*writer : nullptr);
  trainer.Open();
  return trainer.Run();
}

Json Train(const TrainRequest& request) { return Train(request, *MakeSingleCommunicator()); }

}  // namespace denseformer

#include "train/plan.h"

#include <chrono>

#include "base/memory.h"
#include "base/text.h"
#include "data/batches.h"
#include "train/gemm_rate.h"
#include "train/init.h"
#include "train/summary.h"
#include "train/train_step.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

// Seconds of a step: its passes and an update.
double TimeStep(const TrainOptions& options, const TrainBatches& batches, Model& model) {
  const int64_t count = options.pass_sequences(), length = options.model.seq_len;
  model.Initialize(static_cast<uint64_t>(options.seed));
  Activations activations(model, count, length, ModelUse::kTraining, options.recompute);
  TrainOptions one = options;
  one.accumulate = 1;
  TrainStep step(model, activations, one);
  std::vector<int32_t> tokens(static_cast<size_t>(count * length)), targets(tokens.size());
  batches.Fill(0, {0, count}, tokens.data(), targets.data());
  double seconds = 0;
  for (int round = 0; round < 2; ++round) {  // the first one makes primitives and touches memory
    Clock::time_point begin = Clock::now();
    const double loss = step.Accumulate(round, [&](int64_t, int) {
      return Batch{tokens, targets, count, length};
    });
    const double pass = Since(begin);
    begin = Clock::now();
    step.Update(round, 1e-6, loss);
    seconds = options.accumulate * pass + Since(begin);
  }
  return seconds;
}

MemoryUse MemoryOf(const TrainOptions& options) {
  return TrainingMemory(options.model, options.compute(), options.pass_sequences(),
                        options.model.seq_len, options.recompute);
}

}  // namespace

std::string DescribeRecompute(const RecomputeEffect& effect) {
  return fmt::format("{:.0f} % more operations per step, {} less memory",
                     100 * effect.more_operations, Bytes(effect.saved_bytes));
}

void RequireTrainingMemory(const TrainOptions& options, int64_t sequences, const StageUse& use) {
  std::string remedy = "lower train.batch_size or raise train.accumulate (smaller passes)";
  if (!options.recompute) remedy += ", or use --recompute";
  RequireMemory("training",
                StageMemory(options.model, options.compute(), sequences, options.model.seq_len,
                            options.recompute, use)
                    .total(),
                remedy);
}

void RequireTrainingMemory(const TrainOptions& options) {
  const Stage whole = WholeStage(options.model.n_layer);
  RequireTrainingMemory(options, options.pass_sequences(), {&whole, 1, 1});
}

TrainPlan PlanRun(const TrainOptions& options, const TrainData& data, const TrainBatches& batches,
                  int64_t sequences, const MemoryUse& memory) {
  const ParameterTable table(options.model,
                             DepthPattern::Parse(options.model.dwa, options.model.n_layer));
  TrainPlan plan;
  plan.parameters = table.count();
  plan.dwa_weights = table.count(ParameterGroup::kDwa) + table.count(ParameterGroup::kMixer);
  plan.memory = memory;
  plan.recompute =
      EffectOfRecompute(options.model, options.compute(), sequences, options.model.seq_len);
  plan.checkpoint_bytes = 3 * plan.parameters * static_cast<int64_t>(sizeof(float));
  plan.tokens_per_step = int64_t{options.batch_size} * options.model.seq_len;
  plan.tokens = plan.tokens_per_step * options.steps;
  plan.train_tokens = data.train.size();
  plan.validation_tokens = data.validation.size();
  plan.epochs = batches.EpochsAt(options.steps);
  return plan;
}

TrainPlan MakePlan(const TrainOptions& options) {
  options.Validate();
  const TrainData data(options.data, options.model.vocab_size);
  if (!options.init.empty()) InitTokenizer(options.init, data.tokenizer);
  const DType compute = options.compute();
  const TrainBatches batches(
      data.train, {options.model.seq_len, options.batch_size, static_cast<uint64_t>(options.seed),
                   ParseBatchOrder(options.order)});
  RequireTrainingMemory(options);
  TrainPlan plan = PlanRun(options, data, batches, options.pass_sequences(), MemoryOf(options));
  Model model(options.model, compute, ModelUse::kTraining);
  plan.step_seconds = TimeStep(options, batches, model);
  GemmRate rate =
      MeasureGemmRate(options.model, compute, options.pass_sequences() * options.model.seq_len);
  rate.Observe(plan.tokens_per_step, plan.step_seconds);
  plan.gemm_share = rate.Share(plan.tokens_per_step, plan.step_seconds);
  return plan;
}

nlohmann::ordered_json MemoryToJson(const MemoryUse& memory) {
  return {{"total", memory.total()},           {"program", memory.program},
          {"weights", memory.weights},         {"weight_copies", memory.copies},
          {"gradients", memory.gradients},     {"moments", memory.moments},
          {"activations", memory.activations}, {"cache", memory.cache},
          {"loading", memory.loading}};
}

nlohmann::ordered_json RecomputeToJson(bool on, const RecomputeEffect& effect) {
  return {
      {"on", on}, {"more_operations", effect.more_operations}, {"saved_bytes", effect.saved_bytes}};
}

nlohmann::ordered_json PlanToJson(const TrainOptions& options, const TrainPlan& plan) {
  return {{"model", ModelToJson(options.model)},
          {"parameters", plan.parameters},
          {"dwa_weights", plan.dwa_weights},
          {"precision", options.precision},
          {"memory_bytes", plan.memory.total()},
          {"memory", MemoryToJson(plan.memory)},
          {"recompute", RecomputeToJson(options.recompute, plan.recompute)},
          {"checkpoint_bytes", plan.checkpoint_bytes},
          {"steps", options.steps},
          {"tokens_per_step", plan.tokens_per_step},
          {"tokens", plan.tokens},
          {"train_tokens", plan.train_tokens},
          {"validation_tokens", plan.validation_tokens},
          {"epochs", plan.epochs},
          {"step_seconds", plan.step_seconds},
          {"seconds", plan.step_seconds * static_cast<double>(options.steps)},
          {"tokens_per_second", static_cast<double>(plan.tokens_per_step) / plan.step_seconds},
          {"gemm_share", plan.gemm_share}};
}

std::string PlanToText(const TrainOptions& options, const TrainPlan& plan) {
  const ModelConfig& m = options.model;
  std::string text;
  const auto line = [&text](const std::string& name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  line("model",
       fmt::format("{} blocks of width {}, {} heads, {} tokens, vocabulary {}, DWA {}{}", m.n_layer,
                   m.n_embd, m.n_head, m.seq_len, WithCommas(m.vocab_size), m.dwa,
                   (m.mixer != "static" || m.streams != "r"
                        ? fmt::format(", mixer {}, streams {}", m.mixer, m.streams)
                        : std::string()) +
                       (m.gains ? ", gains" : "")));
  line("parameters", fmt::format("{} ({} of them DWA weights)", WithCommas(plan.parameters),
                                 WithCommas(plan.dwa_weights)));
  line("precision", options.precision);
  const MemoryUse& memory = plan.memory;
  line("memory",
       fmt::format("{}: weights {}, their copies {}, gradients {}, moments {}, activations {}, "
                   "program {}",
                   Bytes(memory.total()), Bytes(memory.weights), Bytes(memory.copies),
                   Bytes(memory.gradients), Bytes(memory.moments), Bytes(memory.activations),
                   Bytes(memory.program)));
  line("recompute",
       (options.recompute ? "on: " : "off; on it would mean ") + DescribeRecompute(plan.recompute));
  line("disk", fmt::format("{} per checkpoint, up to {} of them and the best one",
                           Bytes(plan.checkpoint_bytes), options.save_keep));
  line("data", fmt::format("{} tokens to train on, {} to validate", WithCommas(plan.train_tokens),
                           WithCommas(plan.validation_tokens)));
  line("steps",
       fmt::format("{} of {} sequences in {} pass{}: {} tokens per step, {} in all, {:.2f} "
                   "epochs",
                   WithCommas(options.steps), options.batch_size, options.accumulate,
                   options.accumulate == 1 ? "" : "es", WithCommas(plan.tokens_per_step),
                   WithCommas(plan.tokens), plan.epochs));
  if (!options.init.empty()) line("init", fmt::format("weights of {}", options.init));
  if (plan.step_seconds == 0) return text;
  line("time",
       fmt::format(
           "about {} without validation: {:.3g} s per step, {}, {:.0f} % of "
           "the machine's GEMM rate (one step measured)",
           HumanDuration(plan.step_seconds * static_cast<double>(options.steps)), plan.step_seconds,
           HumanRate(static_cast<double>(plan.tokens_per_step) / plan.step_seconds, "tokens/s"),
           100 * plan.gemm_share));
  return text;
}

}  // namespace denseformer

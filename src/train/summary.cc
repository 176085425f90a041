#include "train/summary.h"

#include "base/cpu.h"
#include "base/parallel.h"
#include "model/config_fields.h"

namespace denseformer {

using Json = nlohmann::ordered_json;

Json ModelToJson(const ModelConfig& config) {
  Json json;
  VisitFields(config,
              [&json](const char* name, const auto& value, const char*) { json[name] = value; });
  return json;
}

Json MakeSummary(const SummaryInput& input) {
  const TrainOptions& options = input.options;
  const RunState& state = input.state;
  const int64_t tokens = state.step * options.batch_size * options.model.seq_len;
  // The model may be a stage.
  const ParameterTable table(options.model,
                             DepthPattern::Parse(options.model.dwa, options.model.n_layer));
  Json json = {
      {"format", "denseformer-summary"},
      {"version", 1},
      {"preset", options.preset},
      {"model", ModelToJson(options.model)},
      {"parameters", table.count()},
      {"dwa_weights", table.count(ParameterGroup::kDwa) + table.count(ParameterGroup::kMixer)},
      {"steps", state.step},
      {"batch_size", options.batch_size},
      {"tokens", tokens},
      {"epochs", input.epochs},
      {"seed", options.seed},
      {"precision", options.precision},
      {"ranks", input.ranks},
      {"stages", input.stages},
      {"threads", NumThreads()},
      {"cpu", CpuName(GetCpuFeatures())},
      {"skipped_steps", state.skipped},
      {"seconds", input.seconds},
      {"tokens_per_second",
       state.step_seconds > 0 ? static_cast<double>(tokens) / state.step_seconds : 0.0},
      {"gemm_share", input.gemm_share},
      {"peak_memory_bytes", input.peak_memory}};
  if (input.communication != nullptr && input.communication->steps > 0) {
    const CommunicationCost& cost = *input.communication;
    const double steps = static_cast<double>(cost.steps);
    json["communication"] = {{"gradient_bytes_hidden", cost.hidden_share()},
                             {"gradient_wait_seconds_per_step", cost.gradient_wait / steps},
                             {"weight_wait_seconds_per_step", cost.weight_wait / steps}};
  }
  if (input.final.tokens > 0) {
    const std::optional<double> bits = input.final.bits_per_byte();
    json["validation"] = {{"loss", input.final.loss},
                          {"perplexity", input.final.perplexity()},
                          {"accuracy", input.final.accuracy()},
                          {"tokens", input.final.tokens},
                          {"bits_per_byte", bits ? Json(*bits) : Json()}};
  }
  if (state.best) json["best"] = {{"step", state.best->step}, {"val_loss", state.best->loss}};
  return json;
}

}  // namespace denseformer

#include "train/run_log.h"

#include <fmt/format.h>

#include <cstdlib>

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

// The shortest decimal number that gives this float again.
double Shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

}  // namespace

RunLog::RunLog(const std::string& run, const TrainOptions& options, const Position& position)
    : metrics_(run + "/" + kMetricsFile, position.metrics_bytes, position.step),
      alphas_(run + "/" + kAlphasFile, position.alphas_bytes, position.step) {
  // The file of a resumed run replaces all events after its checkpoint.
  if (options.log_tensorboard) {
    events_.emplace(run + "/tensorboard", position.step > 0 ? position.step + 1 : 0);
  }
}

void RunLog::Step(const StepRecord& record) {
  Json json = {{"step", record.step},   {"tokens", record.tokens},
               {"epoch", record.epoch}, {"loss", record.loss},
               {"lr", record.rate},     {"grad_norm", record.gradient_norm}};
  if (record.skipped) json["skipped"] = true;
  json["seconds"] = record.seconds;
  json["tokens_per_second"] = record.tokens_per_second;
  json["gemm_share"] = record.gemm_share;
  metrics_.Append(json);
  if (events_) {
    events_->Write(record.step, {{"train/loss", record.loss},
                                 {"train/lr", record.rate},
                                 {"train/grad_norm", record.gradient_norm},
                                 {"speed/tokens_per_second", record.tokens_per_second},
                                 {"speed/gemm_share", record.gemm_share}});
  }
}

void RunLog::Validation(int64_t step, const EvalResult& result, double seconds) {
  metrics_.Append({{"step", step},
                   {"val_loss", result.loss},
                   {"val_perplexity", result.perplexity()},
                   {"val_accuracy", result.accuracy()},
                   {"val_tokens", result.tokens},
                   {"seconds", seconds}});
  if (events_) {
    events_->Write(step, {{"validation/loss", result.loss},
                          {"validation/perplexity", result.perplexity()},
                          {"validation/accuracy", result.accuracy()}});
  }
}

void RunLog::Final(int64_t step, const EvalResult& result, double seconds) {
  const std::optional<double> bits = result.bits_per_byte();
  metrics_.Append({{"step", step},
                   {"final_loss", result.loss},
                   {"final_perplexity", result.perplexity()},
                   {"final_accuracy", result.accuracy()},
                   {"final_bits_per_byte", bits ? Json(*bits) : Json()},
                   {"final_tokens", result.tokens},
                   {"seconds", seconds}});
  metrics_.Sync();
  if (events_) {
    events_->Write(step, {{"final/loss", result.loss}, {"final/perplexity", result.perplexity()}});
    events_->Sync();
  }
}

void RunLog::Alphas(int64_t step, const Model& model) {
  if (!model.mixer().plain()) return;  // their weights are not one number per source
  Json modules = Json::object();
  std::vector<std::pair<std::string, double>> values;
  for (int i = 1; i <= model.config().n_layer; ++i) {
    if (!model.pattern().has_module(i)) continue;
    const Tensor& weights = model.tensors().alphas[i];
    Json row = Json::array();
    for (int64_t s = 0; s < weights.count(); ++s) {
      row.push_back(Shortest(weights.f32()[s]));
      values.emplace_back(fmt::format("alpha/{}/{}", i, model.pattern().sources(i)[s]),
                          weights.f32()[s]);
    }
    modules[std::to_string(i)] = std::move(row);
  }
  if (modules.empty()) return;
  alphas_.Append({{"step", step}, {"alphas", std::move(modules)}});
  if (events_) events_->Write(step, values);
}

RunLog::Position RunLog::Sync(int64_t step) {
  metrics_.Sync();
  alphas_.Sync();
  if (events_) events_->Sync();
  return {step, metrics_.size(), alphas_.size(), metrics_.Hash(), alphas_.Hash()};
}

}  // namespace denseformer

// The prompt of one sequence through the path of decoding, on a frozen model, with the logits of
// its last token, against the GEMMs of the blocks alone. Those are the ones that training uses, in
// the type of the activations: int8 may well be faster.
#include <memory>

#include "model/decode.h"
#include "model/gemm_limit.h"
#include "perf/model_bench.h"
#include "perf/shape_rows.h"

namespace denseformer {
namespace {

struct PrefillVariant {
  PrefillVariant(const ModelConfig& config, const ModelBenchOptions& options)
      : model(FrozenRandomModel(config, options.format)),
        activations(DecodeActivations(model, options.length)),
        pool(config, model.compute(), KvPagesFor(options.length)),
        cache(pool),
        data(config, 1, options.length) {}

  void Run() {
    cache.SetLength(0);
    const DecodeSequence sequence{&cache, data.tokens};
    const int64_t last = static_cast<int64_t>(data.tokens.size()) - 1;
    Decode(model, {&sequence, 1}, {&last, 1}, activations, [](int64_t, const Tensor&) {});
  }

  Model model;
  Activations activations;
  KvPool pool;
  KvSequence cache;
  RandomBatch data;
};

std::vector<BenchRow> PrefillRows(const ModelBenchOptions& options, const BenchShape& shape) {
  ShapeRows rows(options, shape);
  ModelConfig blocks = WithPattern(options.config, shape.blocks, "none");
  blocks.vocab_size = 64;  // the head has one row of logits, whatever the prompt
  GemmLimit limit(blocks, options.compute, options.length, ModelUse::kInference);
  rows.Add("GEMMs alone", "", [&] { limit.Forward(); });
  std::vector<std::unique_ptr<PrefillVariant>> models;
  for (const std::string& pattern : options.patterns) {
    models.push_back(std::make_unique<PrefillVariant>(
        WithPattern(options.config, shape.blocks, pattern), options));
    rows.Add(pattern, pattern, [model = models.back().get()] { model->Run(); });
  }
  return rows.Measure();
}

}  // namespace

BenchTable BenchPrefill(const BenchOptions& options) {
  ModelBenchOptions bench = ParseModelOptions(options);
  bench.frozen = true;
  bench.shapes = {{bench.shapes.front().blocks, /*batch=*/1}};
  RequireBenchMemory(bench, ModelUse::kInference);
  return ByShape("prefill of one sequence", bench, PrefillRows);
}

}  // namespace denseformer

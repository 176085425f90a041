// One token of one sequence after `length` cached tokens, against reading the packed weights once.
#include <algorithm>
#include <memory>

#include "model/decode.h"
#include "perf/memory_limit.h"
#include "perf/model_bench.h"
#include "perf/shape_rows.h"

namespace denseformer {
namespace {

struct DecodeVariant {
  DecodeVariant(const ModelConfig& config, const ModelBenchOptions& options)
      : model(RandomModel(config, options.compute, ModelUse::kInference)),
        activations(DecodeActivations(model, std::max<int64_t>(options.length, 1))),
        pool(config, model.compute(), KvPagesFor(config.seq_len)),
        cache(pool),
        cached(std::min<int64_t>(options.length, config.seq_len) - 1) {}
  void Step(std::span<const int32_t> tokens) {
    const DecodeSequence sequence{&cache, tokens};
    const int64_t last = static_cast<int64_t>(tokens.size()) - 1;
    Decode(model, {&sequence, 1}, {&last, 1}, activations, [](int64_t, const Tensor&) {});
  }
  void Run() {
    cache.SetLength(cached);
    Step(token);
  }
  Model model;
  Activations activations;
  KvPool pool;
  KvSequence cache;
  int64_t cached;
  std::vector<int32_t> token{1};
};

std::vector<BenchRow> DecodeRows(const ModelBenchOptions& options, const BenchShape& shape) {
  ShapeRows rows(options, shape);
  const ModelConfig plain = WithPattern(options.config, shape.blocks, "none");
  const ParameterTable table(plain, DepthPattern(plain.n_layer));
  const Storage weights(static_cast<size_t>(table.count()) * SizeOf(options.compute));
  rows.Add("read the weights once", "", [&] {
    ReadBytes({static_cast<const std::byte*>(weights.data()), weights.bytes()});
  });
  std::vector<std::unique_ptr<DecodeVariant>> models;
  for (const std::string& pattern : options.patterns) {
    models.push_back(std::make_unique<DecodeVariant>(
        WithPattern(options.config, shape.blocks, pattern), options));
    DecodeVariant& variant = *models.back();
    variant.Step(std::vector<int32_t>(std::max<int64_t>(variant.cached, 1)));  // the prompt
    rows.Add(pattern, pattern, [&variant] { variant.Run(); });
  }
  std::vector<BenchRow> measured = rows.Measure();
  for (BenchRow& row : measured) {
    row.work = 1;
    row.point->tokens = 1;
  }
  return measured;
}

}  // namespace

BenchTable BenchDecode(const BenchOptions& options) {
  ModelBenchOptions bench = ParseModelOptions(options);
  bench.shapes = {{bench.shapes.front().blocks, /*batch=*/1}};
  return ByShape("decoding one token of one sequence", bench, DecodeRows);
}

}  // namespace denseformer

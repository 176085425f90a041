// Whole forward passes as in the paper, each pattern against the GEMMs of the pass alone. Those are
// the ones that training uses, in the type of the activations, for frozen models too.
#include <memory>

#include "base/error.h"
#include "model/forward.h"
#include "model/gemm_limit.h"
#include "perf/model_bench.h"
#include "perf/shape_rows.h"

namespace denseformer {
namespace {

struct ForwardVariant {
  ForwardVariant(const ModelConfig& config, const ModelBenchOptions& options, int64_t batch)
      : model(options.frozen ? FrozenRandomModel(config, options.format)
                             : RandomModel(config, options.compute, ModelUse::kInference)),
        activations(model, batch, options.length, ModelUse::kInference),
        data(config, batch, options.length) {}
  void Run() { ForwardLoss(model, data.batch, activations); }

  Model model;
  Activations activations;
  RandomBatch data;
};

std::vector<BenchRow> ForwardRows(const ModelBenchOptions& options, const BenchShape& shape) {
  ShapeRows rows(options, shape);
  GemmLimit limit(WithPattern(options.config, shape.blocks, "none"), options.compute,
                  shape.batch * options.length, ModelUse::kInference);
  rows.Add("GEMMs alone", "", [&] { limit.Forward(); });
  std::vector<std::unique_ptr<ForwardVariant>> models;
  for (const std::string& pattern : options.patterns) {
    models.push_back(std::make_unique<ForwardVariant>(
        WithPattern(options.config, shape.blocks, pattern), options, shape.batch));
    rows.Add(pattern, pattern, [model = models.back().get()] { model->Run(); });
  }
  std::vector<BenchRow> measured = rows.Measure();
  for (BenchRow& row : measured) {
    row.work = 1;  // as in the paper
    row.unit = "batches";
  }
  return measured;
}

}  // namespace

BenchTable BenchForward(const BenchOptions& options) {
  const ModelBenchOptions bench = ParseModelOptions(options);
  if (bench.format == WeightFormat::kInt8 && !bench.frozen) {
    Throw(ErrorCode::kUsage, "--precision int8: only frozen models have it; add --frozen");
  }
  RequireBenchMemory(bench, ModelUse::kInference);
  return ByShape("whole forward pass", bench, ForwardRows);
}

}  // namespace denseformer

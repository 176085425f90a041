// Whole training steps, each pattern against the GEMMs of the step alone. A row with recomputation
// has the same pattern without it as its baseline.
#include <algorithm>
#include <memory>
#include <optional>

#include "model/gemm_limit.h"
#include "model/summary.h"
#include "perf/model_bench.h"
#include "perf/shape_rows.h"
#include "train/train_step.h"

namespace denseformer {
namespace {

struct TrainVariant {
  TrainVariant(const ModelConfig& config, const ModelBenchOptions& bench, int64_t batch)
      : model(RandomModel(config, bench.compute, ModelUse::kTraining)),
        activations(model, batch, bench.length, ModelUse::kTraining),
        data(config, batch, bench.length) {
    if (bench.recompute) {
      recomputed.emplace(model, batch, bench.length, ModelUse::kTraining, /*recompute=*/true);
    }
  }

  // The moments are shared by all variants: only the time counts.
  void Run(Activations& memory, std::span<float> first, std::span<float> second) {
    const size_t n = model.weights().size();
    TrainStepParts parts;
    parts.moments = {first.first(n), second.first(n)};
    TrainStep(model, memory, options, parts).Run(0, /*rate=*/1e-6, [this](int64_t, int) {
      return data.batch;
    });
  }

  Model model;
  Activations activations;
  std::optional<Activations> recomputed;
  RandomBatch data;
  TrainOptions options;
};

std::vector<BenchRow> TrainRows(const ModelBenchOptions& options, const BenchShape& shape) {
  ShapeRows rows(options, shape);
  GemmLimit limit(WithPattern(options.config, shape.blocks, "none"), options.compute,
                  shape.batch * options.length, ModelUse::kTraining);
  rows.Add("GEMMs alone", "", [&] {
    limit.Forward();
    limit.Backward();
  });
  std::vector<std::unique_ptr<TrainVariant>> models;
  Storage first, second;  // moments
  size_t largest = 0;
  const auto moments = [&](const Storage& storage) {
    return std::span<float>(static_cast<float*>(storage.data()), largest);
  };
  for (const std::string& pattern : options.patterns) {
    models.push_back(std::make_unique<TrainVariant>(
        WithPattern(options.config, shape.blocks, pattern), options, shape.batch));
    TrainVariant& variant = *models.back();
    largest = std::max(largest, variant.model.weights().size());
    const auto add = [&](const std::string& label, Activations& memory) -> BenchRow& {
      BenchRow& row = rows.Add(label, pattern, [&, run = &variant, used = &memory] {
        run->Run(*used, moments(first), moments(second));
      });
      row.memory = TrainingMemory(variant.model.config(), options.compute, shape.batch,
                                  options.length, memory.recompute())
                       .total();
      return row;
    };
    add(pattern, variant.activations);
    if (options.recompute) {
      const int plain = rows.last();
      BenchRow& row = add(pattern + ", recompute", *variant.recomputed);
      row.baseline = plain;
      row.point->recompute = true;
    }
  }
  first = Storage(largest * sizeof(float));
  second = Storage(largest * sizeof(float));
  return rows.Measure();
}

}  // namespace

BenchTable BenchTrain(const BenchOptions& options) {
  const ModelBenchOptions bench = ParseModelOptions(options);
  RequireBenchMemory(bench, ModelUse::kTraining);
  return ByShape("whole training step", bench, TrainRows);
}

}  // namespace denseformer

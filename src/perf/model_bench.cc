#include "perf/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/random.h"
#include "kernels/gemm/gemm.h"
#include "kernels/memory_limit.h"
#include "model/decode.h"
#include "model/forward.h"
#include "model/gemm_limit.h"
#include "model/summary.h"
#include "perf/shape_rows.h"
#include "train/train_step.h"

namespace denseformer {
namespace {

// Random tokens: the time does not depend on them.
struct RandomBatch {
  RandomBatch(const ModelConfig& config, int64_t sequences, int64_t length)
      : tokens(sequences * length), targets(tokens.size()) {
    Random random(/*key=*/1);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(config.vocab_size));
    for (int32_t& token : targets) token = static_cast<int32_t>(random.Below(config.vocab_size));
    batch = {tokens, targets, sequences, length};
  }
  std::vector<int32_t> tokens, targets;
  Batch batch;
};

ModelConfig WithPattern(const ModelConfig& base, int depth, const std::string& pattern) {
  ModelConfig config = base;
  config.n_layer = depth;
  config.dwa = pattern;
  return config;
}

// Width of a uniform distribution of deviation 1.
constexpr float kSpread = 3.4641016f;

// Weights as large as the recipe's, and averages over all depths: a kernel may be faster on zeros.
// Uniform, which is drawn several times as fast as normal.
void Randomize(Model& model) {
  const std::span<const Parameter> all = model.table().all();
  ParallelFor(static_cast<int64_t>(all.size()), /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Parameter& p = all[static_cast<size_t>(i)];
      const bool norm = p.group == ParameterGroup::kNorm || p.group == ParameterGroup::kGain;
      const float mean = norm ? 1.0f : 0.0f, deviation = p.deviation > 0 ? p.deviation : 0.1f;
      Random random(/*key=*/1, HashName(p.name));
      for (float& w :
           model.weights().subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.count()))) {
        w = mean + deviation * kSpread * (random.Uniform() - 0.5f);
      }
    }
  });
  model.WeightsChanged();
}

struct ForwardVariant {
  ForwardVariant(const ModelConfig& config, const ModelBenchOptions& options, int64_t batch)
      : model(config, options.compute, ModelUse::kInference),
        activations(model, batch, options.length, ModelUse::kInference),
        data(config, batch, options.length) {
    Randomize(model);
  }
  void Run() { ForwardLoss(model, data.batch, activations); }

  Model model;
  Activations activations;
  RandomBatch data;
};

struct TrainVariant {
  TrainVariant(const ModelConfig& config, const ModelBenchOptions& options, int64_t batch)
      : model(config, options.compute, ModelUse::kTraining),
        activations(model, batch, options.length, ModelUse::kTraining),
        data(config, batch, options.length) {
    Randomize(model);
    if (options.recompute) {
      recomputed.emplace(model, batch, options.length, ModelUse::kTraining, /*recompute=*/true);
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

struct DecodeVariant {
  DecodeVariant(const ModelConfig& config, const ModelBenchOptions& o)
      : model(config, o.compute, ModelUse::kInference),
        activations(DecodeActivations(model, std::max<int64_t>(o.length, 1))),
        pool(config, model.compute(), KvPagesFor(config.seq_len)),
        cache(pool),
        cached(std::min<int64_t>(o.length, config.seq_len) - 1) {
    Randomize(model);
    const std::vector<int32_t> prompt(std::max<int64_t>(cached, 1));
    Step(prompt);
  }
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

// All variants of a shape are in memory at once, each with its own weights; moments are shared.
void RequireBenchMemory(const ModelBenchOptions& options, ModelUse use) {
  int64_t most = 0;
  for (const BenchShape& shape : options.shapes) {
    int64_t bytes = 0, moments = 0;
    for (const std::string& pattern : options.patterns) {
      const ModelConfig config = WithPattern(options.config, shape.blocks, pattern);
      const auto memory = [&](bool recompute) {
        return use == ModelUse::kInference
                   ? InferenceMemory(config, options.compute, shape.batch, options.length)
                   : TrainingMemory(config, options.compute, shape.batch, options.length,
                                    recompute);
      };
      const MemoryUse plain = memory(/*recompute=*/false);
      bytes += plain.total() - plain.program - plain.moments;
      if (options.recompute) bytes += memory(/*recompute=*/true).activations;
      moments = std::max(moments, plain.moments);
    }
    most = std::max(most, bytes + moments);
  }
  RequireMemory("holding all variants", most,
                "take fewer patterns (--dwa), fewer blocks (--depths) or a smaller --batch");
}

std::vector<BenchRow> ForwardRows(const ModelBenchOptions& options, const BenchShape& shape) {
  ShapeRows rows(options, shape);
  GemmLimit limit(WithPattern(options.config, shape.blocks, "none"), options.compute,
                  shape.batch * options.length, ModelUse::kInference);
  rows.Add("products alone", "", [&] { limit.Forward(); });
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

std::vector<BenchRow> TrainRows(const ModelBenchOptions& options, const BenchShape& shape) {
  ShapeRows rows(options, shape);
  GemmLimit limit(WithPattern(options.config, shape.blocks, "none"), options.compute,
                  shape.batch * options.length, ModelUse::kTraining);
  rows.Add("products alone", "", [&] {
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
    rows.Add(pattern, pattern, [model = models.back().get()] { model->Run(); });
  }
  std::vector<BenchRow> measured = rows.Measure();
  for (BenchRow& row : measured) {
    row.work = 1;
    row.point->tokens = 1;
  }
  return measured;
}

}  // namespace

BenchTable BenchForward(const ModelBenchOptions& options) {
  RequireBenchMemory(options, ModelUse::kInference);
  return ByShape("whole forward pass", options, ForwardRows);
}

BenchTable BenchTrain(const ModelBenchOptions& options) {
  RequireBenchMemory(options, ModelUse::kTraining);
  return ByShape("whole training step", options, TrainRows);
}

BenchTable BenchDecode(const ModelBenchOptions& options) {
  ModelBenchOptions one = options;
  one.shapes = {{options.shapes.front().blocks, /*batch=*/1}};
  return ByShape("decoding one token of one sequence", one, DecodeRows);
}

}  // namespace denseformer

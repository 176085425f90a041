#include "perf/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/random.h"
#include "kernels/adamw.h"
#include "kernels/gemm.h"
#include "kernels/memory_limit.h"
#include "model/decode.h"
#include "model/forward.h"
#include "model/gemm_limit.h"
#include "model/summary.h"

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

std::vector<int> Depths(const ModelBenchOptions& options) {
  return options.depths.empty() ? std::vector<int>{options.config.n_layer} : options.depths;
}

std::string Name(const ModelBenchOptions& options, int depth, const std::string& pattern) {
  return options.depths.size() > 1 ? fmt::format("{} blocks, {}", depth, pattern) : pattern;
}

// Rows come in groups of one limit and the patterns of a depth, each with its recomputing row
// behind it where that is asked for.
BenchTable GroupedTable(std::string title, const ModelBenchOptions& options,
                        const std::vector<Timing>& timings) {
  BenchTable table = MakeTable(std::move(title), timings,
                               static_cast<double>(options.batch * options.length), "tokens");
  const int per_pattern = options.recompute ? 2 : 1;
  const int group = static_cast<int>(options.patterns.size()) * per_pattern + 1;
  for (int r = 0; r < static_cast<int>(table.rows.size()); ++r) {
    const int limit = r / group * group;
    if (r == limit) continue;
    table.rows[r].limit = limit;
    const bool recomputes = (r - limit) % per_pattern == 0 && options.recompute;
    table.rows[r].baseline = recomputes ? r - 1 : limit + 1;
  }
  table.settings = {{"width", std::to_string(options.config.n_embd)},
                    {"blocks", fmt::format("{}", fmt::join(Depths(options), ", "))},
                    {"batch", fmt::format("{} x {} tokens", options.batch, options.length)},
                    {"precision", DTypeName(options.compute)},
                    {"threads", std::to_string(NumThreads())},
                    {"products", GemmDescription()}};
  return table;
}

struct ForwardVariant {
  ForwardVariant(const ModelConfig& config, const ModelBenchOptions& options)
      : model(config, options.compute, ModelUse::kInference),
        activations((Randomize(model), model), options.batch, options.length, ModelUse::kInference),
        data(config, options.batch, options.length) {}
  void Run() { ForwardLoss(model, data.batch, activations); }

  Model model;
  Activations activations;
  RandomBatch data;
};

struct TrainVariant {
  TrainVariant(const ModelConfig& config, const ModelBenchOptions& options)
      : model(config, options.compute, ModelUse::kTraining),
        activations((Randomize(model), model), options.batch, options.length, ModelUse::kTraining),
        data(config, options.batch, options.length) {
    if (options.recompute) {
      recomputed.emplace(model, options.batch, options.length, ModelUse::kTraining,
                         /*recompute=*/true);
    }
  }

  // The moments are shared by all variants: only the time counts.
  void Run(Activations& memory, std::span<float> first, std::span<float> second) {
    ForwardBackward(model, data.batch, {}, 1, Gradients::kReplace, memory);
    AdamWStep step;
    step.rate = 1e-6f;
    SumOfSquares(model.gradients());
    model.ChangeWeights([&](const Parameter&, int64_t begin, int64_t end) {
      const size_t at = static_cast<size_t>(begin), n = static_cast<size_t>(end - begin);
      AdamWUpdate(step, model.weights().subspan(at, n), model.gradients().subspan(at, n),
                  first.subspan(at, n), second.subspan(at, n));
    });
  }

  Model model;
  Activations activations;
  std::optional<Activations> recomputed;
  RandomBatch data;
};

// All variants are in memory at once, each with its own weights; moments are shared.
void RequireBenchMemory(const ModelBenchOptions& options, ModelUse use) {
  int64_t bytes = 0, moments = 0;
  for (int depth : Depths(options)) {
    for (const std::string& pattern : options.patterns) {
      const ModelConfig config = WithPattern(options.config, depth, pattern);
      const auto memory = [&](bool recompute) {
        return use == ModelUse::kInference
                   ? InferenceMemory(config, options.compute, options.batch, options.length)
                   : TrainingMemory(config, options.compute, options.batch, options.length,
                                    recompute);
      };
      const MemoryUse plain = memory(/*recompute=*/false);
      bytes += plain.total() - plain.program - plain.moments;
      if (options.recompute) bytes += memory(/*recompute=*/true).activations;
      moments = std::max(moments, plain.moments);
    }
  }
  RequireMemory("holding all variants", bytes + moments,
                "take fewer patterns (--dwa) or depths, or a smaller --batch");
}

}  // namespace

BenchTable BenchForward(const ModelBenchOptions& options) {
  RequireBenchMemory(options, ModelUse::kInference);
  std::vector<std::unique_ptr<GemmLimit>> limits;
  std::vector<std::unique_ptr<ForwardVariant>> models;
  std::vector<Variant> variants;
  for (int depth : Depths(options)) {
    limits.push_back(std::make_unique<GemmLimit>(WithPattern(options.config, depth, "none"),
                                                 options.compute, options.batch * options.length,
                                                 ModelUse::kInference));
    variants.push_back({Name(options, depth, "products alone"),
                        [limit = limits.back().get()] { limit->Forward(); }});
    for (const std::string& pattern : options.patterns) {
      models.push_back(
          std::make_unique<ForwardVariant>(WithPattern(options.config, depth, pattern), options));
      variants.push_back(
          {Name(options, depth, pattern), [model = models.back().get()] { model->Run(); }});
    }
  }
  BenchTable table =
      GroupedTable("whole forward pass", options, Interleave(variants, options.interleave));
  for (BenchRow& row : table.rows) {
    row.work = 1;  // as in the paper
    row.unit = "batches";
  }
  return table;
}

BenchTable BenchTrain(const ModelBenchOptions& options) {
  RequireBenchMemory(options, ModelUse::kTraining);
  std::vector<std::unique_ptr<GemmLimit>> limits;
  std::vector<std::unique_ptr<TrainVariant>> models;
  std::vector<Variant> variants;
  std::vector<int64_t> bytes;  // by variant
  size_t largest = 0;
  Storage first, second;
  auto moments = [&](Storage& storage) {
    return std::span<float>(static_cast<float*>(storage.data()), largest);
  };
  for (int depth : Depths(options)) {
    limits.push_back(std::make_unique<GemmLimit>(WithPattern(options.config, depth, "none"),
                                                 options.compute, options.batch * options.length,
                                                 ModelUse::kTraining));
    variants.push_back({Name(options, depth, "products alone"), [limit = limits.back().get()] {
                          limit->Forward();
                          limit->Backward();
                        }});
    bytes.push_back(0);
    for (const std::string& pattern : options.patterns) {
      models.push_back(
          std::make_unique<TrainVariant>(WithPattern(options.config, depth, pattern), options));
      largest = std::max(largest, models.back()->model.weights().size());
      const auto add = [&](const std::string& name, Activations& activations) {
        variants.push_back(
            {Name(options, depth, name), [&, model = models.back().get(), memory = &activations] {
               model->Run(*memory, moments(first), moments(second));
             }});
        const bool recompute = activations.recompute();
        bytes.push_back(TrainingMemory(models.back()->model.config(), options.compute,
                                       options.batch, options.length, recompute)
                            .total());
      };
      add(pattern, models.back()->activations);
      if (options.recompute) add(pattern + ", recompute", *models.back()->recomputed);
    }
  }
  first = Storage(largest * sizeof(float));
  second = Storage(largest * sizeof(float));
  BenchTable table =
      GroupedTable("whole training step", options, Interleave(variants, options.interleave));
  for (size_t r = 0; r < table.rows.size(); ++r) table.rows[r].memory = bytes[r];
  return table;
}

BenchTable BenchDecode(const ModelBenchOptions& options) {
  struct DecodeVariant {
    DecodeVariant(const ModelConfig& config, const ModelBenchOptions& o)
        : model(config, o.compute, ModelUse::kInference),
          activations(DecodeActivations((Randomize(model), model), std::max<int64_t>(o.length, 1))),
          cache(model, 1, config.seq_len),
          logits(config.vocab_size),
          cached(std::min<int64_t>(o.length, config.seq_len) - 1) {
      const std::vector<int32_t> prompt(std::max<int64_t>(cached, 1));
      Step(prompt);
    }
    void Step(std::span<const int32_t> tokens) {
      const DecodeSequence sequence{0, tokens};
      Decode(model, {&sequence, 1}, cache, activations,
             Tensor(logits.data(), {1, static_cast<int64_t>(logits.size())}));
    }
    void Run() {
      cache.SetLength(0, cached);
      Step(token);
    }
    Model model;
    Activations activations;
    KvCache cache;
    std::vector<float> logits;
    int64_t cached;
    std::vector<int32_t> token{1};
  };
  std::vector<std::unique_ptr<DecodeVariant>> models;
  const ParameterTable table(options.config, DepthPattern(options.config.n_layer));
  const Storage weights(static_cast<size_t>(table.count()) * SizeOf(options.compute));
  std::vector<Variant> variants = {
      {"read the weights once", [&] {
         ReadBytes({static_cast<const std::byte*>(weights.data()), weights.bytes()});
       }}};
  for (const std::string& pattern : options.patterns) {
    models.push_back(std::make_unique<DecodeVariant>(
        WithPattern(options.config, options.config.n_layer, pattern), options));
    variants.push_back({pattern, [model = models.back().get()] { model->Run(); }});
  }
  ModelBenchOptions one = options;
  one.batch = 1;
  BenchTable result = GroupedTable("decoding one token of one sequence", one,
                                   Interleave(variants, options.interleave));
  for (BenchRow& row : result.rows) row.work = 1;
  return result;
}

}  // namespace denseformer

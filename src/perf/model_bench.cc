#include "perf/model_bench.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/text.h"
#include "denseformer/depth_pattern.h"
#include "model/summary.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

constexpr int kMaxBlocks = 4096;
constexpr int64_t kMaxSequences = 1 << 20;

// Width of a uniform distribution of standard deviation 1.
constexpr float kUniformWidth = 3.4641016f;

template <typename T>
std::vector<T> ParseList(const char* option, const std::string& text, T high) {
  std::vector<T> values;
  for (const std::string& part : Split(text, ',')) {
    values.push_back(static_cast<T>(ParseInt(option, part, 1, high)));
  }
  return values;
}

std::vector<BenchShape> ParseShapes(const BenchOptions& options, int preset_blocks) {
  std::vector<int> depths{preset_blocks};
  if (options.depths) depths = ParseList("--depths", *options.depths, kMaxBlocks);
  std::vector<BenchShape> shapes;
  for (const int64_t batch : ParseList("--batch", options.batches, kMaxSequences)) {
    for (const int blocks : depths) shapes.push_back({blocks, batch});
  }
  return shapes;
}

}  // namespace

ModelBenchOptions ParseModelOptions(const BenchOptions& options) {
  ModelBenchOptions bench;
  bench.config = ModelConfig::Preset(options.preset);
  bench.shapes = ParseShapes(options, bench.config.n_layer);
  bench.patterns = Split(options.patterns, ',');
  bench.config.mixer = options.mixer;
  bench.config.streams = options.streams;
  bench.config.mixer_norm = options.mixer_norm;
  for (const std::string& pattern : bench.patterns) {
    for (const BenchShape& shape : bench.shapes) {
      WithPattern(bench.config, shape.blocks, pattern).Validate();
    }
  }
  bench.format = FormatOf(ParsePrecision(options.precision));
  bench.compute = ComputeOf(bench.format);
  bench.length = options.length > 0 ? options.length : bench.config.seq_len;
  if (bench.length > bench.config.seq_len) bench.config.seq_len = static_cast<int>(bench.length);
  bench.recompute = options.recompute;
  bench.frozen = options.frozen;
  bench.interleave = options.interleave;
  return bench;
}

ModelConfig WithPattern(const ModelConfig& base, int depth, const std::string& pattern) {
  const std::vector<std::string> parts = Split(pattern, '+');
  ModelConfig config = base;
  config.n_layer = depth;
  std::string* const fields[] = {&config.dwa, &config.mixer, &config.streams, &config.mixer_norm};
  if (parts.size() > std::size(fields)) {
    Throw(ErrorCode::kUsage, "--dwa: got '{}', expected PATTERN or PATTERN+MIXER+STREAMS+NORM",
          pattern);
  }
  for (size_t i = 0; i < parts.size(); ++i) *fields[i] = parts[i];
  if (pattern == "none") {  // no modules to mix
    config.mixer = ModelConfig().mixer;
    config.streams = ModelConfig().streams;
    config.mixer_norm = ModelConfig().mixer_norm;
  }
  return config;
}

namespace {

// Around which the random values of a parameter lie: an average passes its newest source on, as in
// training. Without that gradients vanish over the depth into denormal numbers, which take a CPU
// hundreds of cycles each.
float MeanOf(const Parameter& p, int64_t index) {
  const int64_t row = p.shape[p.shape.rank() - 1];
  const bool one = p.initializer == Initializer::kOnes ||
                   (p.initializer == Initializer::kIdentity && (index + 1) % row == 0);
  return one ? 1.0f : 0.0f;
}

float DeviationOf(const Parameter& p) { return p.deviation > 0 ? p.deviation : 0.1f; }

}  // namespace

Model RandomModel(const ModelConfig& config, DType compute, ModelUse use) {
  Model model(config, compute, use);
  const std::span<const Parameter> all = model.table().all();
  ParallelFor(static_cast<int64_t>(all.size()), /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Parameter& p = all[static_cast<size_t>(i)];
      const float width = DeviationOf(p) * kUniformWidth;
      // Uniform numbers take a fraction of the time of normal ones.
      Random random(/*key=*/1, HashName(p.name));
      float* const values = model.weights().data() + p.offset;
      for (int64_t n = 0; n < p.count(); ++n) {
        values[n] = MeanOf(p, n) + width * (random.Uniform() - 0.5f);
      }
    }
  });
  model.WeightsChanged();
  return model;
}

Model FrozenRandomModel(const ModelConfig& config, WeightFormat format) {
  Model model(config, format);
  const auto fill = [](const Parameter& p, int64_t first, int64_t count, float* values, float*) {
    Random random(static_cast<uint64_t>(first), HashName(p.name));
    const int64_t row = p.shape[p.shape.rank() - 1];
    for (int64_t n = 0; n < count * row; ++n) {
      values[n] = MeanOf(p, first * row + n) + DeviationOf(p) * (random.Uniform() - 0.5f);
    }
    return false;
  };
  model.Fill(fill, [](const Parameter&) {});
  return model;
}

RandomBatch::RandomBatch(const ModelConfig& config, int64_t sequences, int64_t length)
    : tokens(sequences * length), targets(tokens.size()) {
  Random random(/*key=*/1);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(config.vocab_size));
  for (int32_t& token : targets) token = static_cast<int32_t>(random.Below(config.vocab_size));
  batch = {tokens, targets, sequences, length};
}

namespace {

MemoryUse VariantMemory(const ModelBenchOptions& options, const ModelConfig& config, int64_t batch,
                        ModelUse use, bool recompute) {
  const MemoryUse training =
      TrainingMemory(config, options.compute, batch, options.length, recompute);
  if (use == ModelUse::kTraining) return training;
  MemoryUse memory = InferenceMemory(config, options.format, batch, options.length);
  if (!options.frozen) {
    memory.weights = training.weights;
    memory.copies = training.copies;
  }
  return memory;
}

}  // namespace

void RequireBenchMemory(const ModelBenchOptions& options, ModelUse use) {
  int64_t most = 0;
  for (const BenchShape& shape : options.shapes) {
    int64_t bytes = 0, moments = 0;
    for (const std::string& pattern : options.patterns) {
      const ModelConfig config = WithPattern(options.config, shape.blocks, pattern);
      const auto memory = [&](bool recompute) {
        return VariantMemory(options, config, shape.batch, use, recompute);
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

}  // namespace denseformer

// One step of decoding: one token for each of several sequences after some cached tokens, on a
// frozen model, against reading the weights and the cached keys and values once. The time of a step
// is the time per token of each sequence; the rate counts the tokens of all.
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/decode.h"
#include "perf/memory_limit.h"
#include "perf/model_bench.h"
#include "perf/shape_rows.h"

namespace denseformer {
namespace {

// Sequences whose caches hold `context` - 1 tokens each; what those are takes no part in the time.
struct DecodeSteps {
  DecodeSteps(const Model& model_in, int64_t batch, int64_t context_in)
      : model(model_in),
        context(context_in),
        activations(DecodeActivations(model, batch)),
        pool(model.config(), model.compute(), batch * KvPagesFor(context)),
        token{1} {
    for (int64_t s = 0; s < batch; ++s) {
      caches.emplace_back(pool);
      rows.push_back(s);
    }
    for (KvSequence& cache : caches) sequences.push_back({&cache, token});
  }
  void Run() {
    for (KvSequence& cache : caches) {
      cache.SetLength(std::min(cache.length(), context - 1));
      cache.Reserve(context);
      cache.SetLength(context - 1);
    }
    Decode(model, sequences, rows, activations, [](int64_t, const Tensor&) {});
  }

  const Model& model;
  int64_t context;
  Activations activations;
  KvPool pool;
  std::vector<int32_t> token;
  std::vector<KvSequence> caches;
  std::vector<int64_t> rows;
  std::vector<DecodeSequence> sequences;
};

// Bytes of `buffer`, again from the start as often as it takes.
void ReadAround(const Storage& buffer, size_t bytes) {
  const std::byte* const data = static_cast<const std::byte*>(buffer.data());
  for (; bytes > 0; bytes -= std::min(bytes, buffer.bytes())) {
    ReadBytes({data, std::min(bytes, buffer.bytes())});
  }
}

std::vector<int64_t> ParseContexts(const BenchOptions& options, int64_t length) {
  if (options.contexts.empty()) return {length};
  std::vector<int64_t> contexts;
  for (const std::string& part : Split(options.contexts, ',')) {
    contexts.push_back(ParseInt("--context", part, 1, 1 << 20));
  }
  return contexts;
}

std::vector<BenchRow> NoRows(const ModelBenchOptions&, const BenchShape&) { return {}; }

}  // namespace

BenchTable BenchDecode(const BenchOptions& options) {
  ModelBenchOptions bench = ParseModelOptions(options);
  const std::vector<int64_t> contexts = ParseContexts(options, bench.length);
  bench.config.seq_len = std::max<int>(
      bench.config.seq_len, static_cast<int>(*std::max_element(contexts.begin(), contexts.end())));
  const WeightFormat format = bench.format;
  const int blocks = bench.shapes.front().blocks;
  std::vector<Model> models;
  models.reserve(bench.patterns.size());
  for (const std::string& pattern : bench.patterns) {
    models.push_back(FrozenRandomModel(WithPattern(bench.config, blocks, pattern), format));
  }
  const Storage buffer(Model::FrozenMatrixBytes(models.front().table(), format));
  const int64_t page = static_cast<int64_t>(KvPool::PageBytes(bench.config, bench.compute));
  BenchTable table = ByShape("a step of decoding", bench, NoRows);
  const bool several = contexts.size() * bench.shapes.size() > 1;
  for (auto& [name, value] : table.settings) {
    if (name == "batch") {
      value = fmt::format("{} after {} tokens", options.batches, fmt::join(contexts, ","));
    }
    if (name == "gemm") value = FrozenGemmDescription(format);
  }
  for (const int64_t context : contexts) {
    for (const BenchShape& shape : bench.shapes) {
      // All models of a shape take turns, each with a cache of its own.
      const int64_t kept = std::ssize(models) * shape.batch * KvPagesFor(context) * page;
      const std::string name = fmt::format("{} x {}", shape.batch, context);
      if (kept > AvailableMemory() * 9 / 10) {
        LogWarning("{} tokens: left out, keys and values take {}", name,
                   HumanBytes(static_cast<double>(kept)));
        continue;
      }
      ModelBenchOptions one = bench;  // names no shape, as the labels do
      one.shapes = {shape};
      ShapeRows rows(one, shape);
      const size_t bytes =
          buffer.bytes() + static_cast<size_t>(shape.batch * context * page / kKvPageTokens);
      const std::string prefix = several ? name + ", " : "";
      rows.Add(prefix + "read the weights once", "", [&] { ReadAround(buffer, bytes); });
      std::vector<std::unique_ptr<DecodeSteps>> steps;
      for (size_t m = 0; m < models.size(); ++m) {
        steps.push_back(std::make_unique<DecodeSteps>(models[m], shape.batch, context));
        rows.Add(prefix + bench.patterns[m], bench.patterns[m],
                 [&run = *steps.back()] { run.Run(); });
      }
      const int first = static_cast<int>(table.rows.size());
      for (BenchRow& row : rows.Measure()) {
        row.work = static_cast<double>(shape.batch);
        row.point->tokens = shape.batch;
        row.sequences = shape.batch;
        row.context = context;
        if (row.limit >= 0) row.limit += first;
        if (row.baseline >= 0) row.baseline += first;
        table.rows.push_back(std::move(row));
      }
    }
  }
  return table;
}

}  // namespace denseformer

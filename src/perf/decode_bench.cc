// One step of decoding: one token for each of several sequences after some cached tokens, on a
// frozen model, against reading the weights and the cached keys and values once. The time of a step
// is the time per token of each sequence; the rate counts the tokens of all.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/decode.h"
#include "model/summary.h"
#include "perf/memory_limit.h"
#include "perf/model_bench.h"
#include "perf/shape_rows.h"

namespace denseformer {
namespace {

// Sequences whose caches hold `context` - 1 tokens each; what those are takes no part in the time,
// so the models take turns on the same ones.
struct FilledCaches {
  FilledCaches(const Model& model, int64_t batch, int64_t context_in)
      : context(context_in),
        pool(model.config(), model.compute(), batch * KvPagesFor(context)),
        token{1} {
    for (int64_t s = 0; s < batch; ++s) {
      caches.emplace_back(pool);
      rows.push_back(s);
    }
    // Written, or the system would have them read one page of zeros all over.
    const size_t bytes = KvPool::PageBytes(model.config(), model.compute());
    for (KvSequence& cache : caches) {
      cache.Reserve(context);
      for (std::byte* page : cache.pages()) std::memset(page, 0, bytes);
      sequences.push_back({&cache, token});
    }
  }

  int64_t context;
  KvPool pool;
  std::vector<int32_t> token;
  std::vector<KvSequence> caches;
  std::vector<int64_t> rows;
  std::vector<DecodeSequence> sequences;
};

void DecodeStep(const Model& model, FilledCaches& filled, Activations& activations) {
  for (KvSequence& cache : filled.caches) {
    cache.Reserve(filled.context);
    cache.SetLength(filled.context - 1);
  }
  Decode(model, filled.sequences, filled.rows, activations, [](int64_t, const Tensor&) {});
}

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

struct DecodeShape {
  int64_t context;
  BenchShape shape;
};

// Memory of all that is alive while a shape is measured: every model with its buffers, one set of
// caches for all, and a buffer as large as the matrices of one.
int64_t BytesOf(const ModelBenchOptions& bench, const DecodeShape& shape) {
  int64_t bytes = 0, shared = 0;
  for (const std::string& pattern : bench.patterns) {
    const MemoryUse memory =
        GenerationMemory(WithPattern(bench.config, shape.shape.blocks, pattern), bench.format,
                         shape.shape.batch, shape.shape.batch, shape.context);
    bytes += memory.weights + memory.copies + memory.activations;
    shared = memory.program + memory.cache + memory.copies;
  }
  return bytes + shared;
}

// The shapes that fit into memory. Throws where none does.
std::vector<DecodeShape> FittingShapes(const ModelBenchOptions& bench,
                                       const std::vector<int64_t>& contexts) {
  std::vector<DecodeShape> all, fitting;
  for (const int64_t context : contexts) {
    for (const BenchShape& shape : bench.shapes) all.push_back({context, shape});
  }
  const int64_t available = AvailableMemory();
  for (const DecodeShape& shape : all) {
    const int64_t bytes = BytesOf(bench, shape);
    if (bytes <= available) {
      fitting.push_back(shape);
    } else if (all.size() > 1) {
      LogWarning("{} x {} tokens: left out, it needs about {} of memory, and {} are free here",
                 shape.shape.batch, shape.context, HumanBytes(static_cast<double>(bytes)),
                 HumanBytes(static_cast<double>(available)));
    }
  }
  if (fitting.empty()) {
    RequireMemory(
        fmt::format("decoding {} x {} tokens", all.front().shape.batch, all.front().context),
        BytesOf(bench, all.front()),
        "take fewer patterns (--dwa), a smaller --batch or a shorter --context");
  }
  return fitting;
}

}  // namespace

BenchTable BenchDecode(const BenchOptions& options) {
  ModelBenchOptions bench = ParseModelOptions(options);
  bench.frozen = true;
  const std::vector<int64_t> contexts = ParseContexts(options, bench.length);
  bench.config.seq_len = std::max<int>(
      bench.config.seq_len, static_cast<int>(*std::max_element(contexts.begin(), contexts.end())));
  const std::vector<DecodeShape> shapes = FittingShapes(bench, contexts);
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
  for (const auto& [context, shape] : shapes) {
    ModelBenchOptions one = bench;  // names no shape, as the labels do
    one.shapes = {shape};
    ShapeRows rows(one, shape);
    const size_t bytes =
        buffer.bytes() + static_cast<size_t>(shape.batch * context * page / kKvPageTokens);
    const std::string prefix = several ? fmt::format("{} x {}, ", shape.batch, context) : "";
    rows.Add(prefix + "read the weights once", "", [&] { ReadAround(buffer, bytes); });
    FilledCaches caches(models.front(), shape.batch, context);
    std::vector<Activations> activations;
    activations.reserve(models.size());
    for (size_t m = 0; m < models.size(); ++m) {
      activations.push_back(DecodeActivations(models[m], shape.batch));
      rows.Add(prefix + bench.patterns[m], bench.patterns[m],
               [&, m] { DecodeStep(models[m], caches, activations[m]); });
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
  return table;
}

}  // namespace denseformer

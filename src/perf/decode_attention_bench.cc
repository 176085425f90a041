// Attention of one new token to the cached keys and values of a sequence, over the caches of
// several blocks, which together are larger than the CPU's caches, against reading them once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/attention/attention_decode.h"
#include "kernels/rotary.h"
#include "perf/kernel_bench.h"
#include "perf/memory_limit.h"

namespace denseformer {
namespace {

// The pages of one sequence, filled with T tokens of every block.
struct FilledPages {
  FilledPages(const KernelBenchOptions& options, size_t blocks_in)
      : blocks(blocks_in),
        block_bytes(
            KvPageBlockBytes(options.config.n_head, options.config.head_size(), options.compute)),
        values(options.compute,
               {static_cast<int64_t>(block_bytes / SizeOf(options.compute) * blocks)}),
        memory(static_cast<size_t>((options.length + kKvPageTokens - 1) / kKvPageTokens) *
               values.storage.bytes()) {
    std::byte* const first = static_cast<std::byte*>(memory.data());
    for (size_t at = 0; at < memory.bytes(); at += values.storage.bytes()) {
      std::memcpy(first + at, values.storage.data(), values.storage.bytes());
      pages.push_back(first + at);
    }
  }

  size_t blocks, block_bytes;
  FilledTensor values;  // of one page
  Storage memory;
  std::vector<std::byte*> pages;
};

}  // namespace

BenchTable BenchDecodeAttention(const BenchOptions& bench_options) {
  const KernelBenchOptions options = ParseKernelOptions(bench_options);
  const int64_t D = options.config.n_embd, T = options.length, heads = options.config.n_head;
  constexpr size_t kLeastBytes = size_t{256} << 20;
  const size_t token_bytes = static_cast<size_t>(2 * D) * SizeOf(options.compute);
  FilledPages pages(options,
                    std::max<size_t>(1, kLeastBytes / (static_cast<size_t>(T) * token_bytes)));
  FilledTensor qkv(options.compute, {1, 3 * D}), out(options.compute, {1, D});
  FilledTensor rotary(DType::kF32, {T, options.config.head_size()});
  FillRotaryTable(10000, rotary.tensor);
  const DecodeQuery query{.row = 0, .count = 1, .start = T - 1, .pages = pages.pages};
  const std::vector<Variant> variants = {
      {"read keys and values once",
       [&] {
         ReadBytes({static_cast<const std::byte*>(pages.memory.data()), pages.memory.bytes()});
       }},
      {"attention of one token", [&] {
         for (size_t block = 0; block < pages.blocks; ++block) {
           AttentionDecode({.qkv = qkv.tensor,
                            .heads = heads,
                            .rotary = rotary.tensor,
                            .page_offset = block * pages.block_bytes,
                            .queries = {&query, 1},
                            .out = out.tensor});
         }
       }}};
  BenchTable table =
      MakeTable("attention of one token to a cache", Interleave(variants, options.interleave),
                static_cast<double>(pages.memory.bytes()), "B");
  table.settings = KernelSettings(options);
  std::erase_if(table.settings, [](const auto& setting) {
    return setting.first == "tokens" || setting.first == "gemm";
  });
  table.settings.push_back({"cached tokens", std::to_string(T)});
  table.settings.push_back({"blocks", std::to_string(pages.blocks)});
  table.rows[1].limit = 0;
  return table;
}

}  // namespace denseformer

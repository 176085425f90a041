// Encoding a text, on one thread and on all.
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "denseformer/tokenizer.h"
#include "perf/benchmark.h"

namespace denseformer {

BenchTable BenchTokenizer(const BenchOptions& options) {
  if (options.tokenizer.empty() || options.text.empty()) {
    Throw(ErrorCode::kUsage, "bench tokenizer: give --tokenizer PATH and --text FILE");
  }
  const std::string text = ReadFile(options.text, size_t{4} << 30);
  const Tokenizer tokenizer = Tokenizer::Load(options.tokenizer);
  const int threads = NumThreads();
  auto encode = [&](int n) {
    SetNumThreads(n);
    tokenizer.Encode(text);
    SetNumThreads(threads);
  };
  std::vector<Variant> variants = {{"1 thread", [&] { encode(1); }}};
  if (threads > 1)
    variants.push_back({fmt::format("{} threads", threads), [&] { encode(threads); }});
  BenchTable table = MakeTable("encoding text", Interleave(variants, options.interleave),
                               static_cast<double>(text.size()), "bytes");
  table.settings = {{"text", std::to_string(text.size()) + " bytes"},
                    {"tokenizer", options.tokenizer}};
  if (threads > 1) table.rows[1].baseline = 0;
  return table;
}

}  // namespace denseformer

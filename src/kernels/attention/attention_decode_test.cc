#include "kernels/attention/attention_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/rotary.h"

namespace denseformer {
namespace {

struct Sequence {
  int64_t start, count;
};

// Sequences with caches of their own; positions [0, start) of each cache are filled.
template <class E>
struct Batch {
  Batch(int64_t heads_in, int64_t head_size_in, std::vector<Sequence> sequences_in)
      : heads(heads_in), head_size(head_size_in), sequences(std::move(sequences_in)) {
    Random random(3);
    const auto normal = [&](int64_t count) {
      std::vector<E> values(static_cast<size_t>(count));
      for (E& value : values) value = E(random.Normal());
      return values;
    };
    int64_t positions = 1;
    for (const Sequence& s : sequences) {
      // What stands before position 0 of the page's memory, and beyond the tokens, is not a number:
      // it must not reach any result.
      const int64_t count = (s.start + s.count + kKvPageTokens - 1) / kKvPageTokens;
      for (int64_t n = 0; n < count; ++n) {
        std::vector<E>& page = memory.emplace_back(PageElements() + kOffset, E(NAN));
        pointers.push_back(reinterpret_cast<std::byte*>(page.data()));
      }
      pages.push_back(count);
      positions = std::max(positions, s.start + s.count);
      // A first pass stores the tokens before `start`.
      old.push_back(normal(s.start * 3 * width()));
      rows += s.count;
    }
    table.resize(static_cast<size_t>(positions * head_size));
    rotary = Tensor(table.data(), {positions, head_size});
    FillRotaryTable(10000, rotary);
    qkv = normal(rows * 3 * width());
    out.assign(static_cast<size_t>(rows * width()), E(7.0f));
    for (size_t n = 0; n < sequences.size(); ++n) {
      const int64_t start = sequences[n].start;
      std::vector<E> ignored(static_cast<size_t>(start * width()));
      if (start == 0) continue;
      const DecodeQuery query{0, start, 0, Pages(n)};
      Attend(Tensor(old[n].data(), {start, 3 * width()}), {&query, 1},
             Tensor(ignored.data(), {start, width()}));
    }
  }

  static constexpr int64_t kOffset = 64;  // elements before the block in a page
  int64_t width() const { return heads * head_size; }
  size_t PageElements() const {
    return KvPageBlockBytes(heads, head_size, DTypeOf<E>::value) / sizeof(E);
  }
  std::span<std::byte* const> Pages(size_t n) const {
    int64_t begin = 0;
    for (size_t before = 0; before < n; ++before) begin += pages[before];
    return std::span<std::byte* const>(pointers).subspan(static_cast<size_t>(begin),
                                                         static_cast<size_t>(pages[n]));
  }
  int64_t FirstRow(size_t n) const {
    int64_t row = 1;  // row 0 belongs to no sequence
    for (size_t before = 0; before < n; ++before) row += sequences[before].count;
    return row;
  }
  // New tokens [begin, end) of sequence n.
  DecodeQuery Query(size_t n, int64_t begin, int64_t end) const {
    return {FirstRow(n) + begin, end - begin, sequences[n].start + begin, Pages(n)};
  }
  // Element e of q (part 0), k (1) or v (2) at a position of sequence n, q and k rotated.
  double At(size_t n, int64_t part, int64_t head, int64_t position, int64_t e) const {
    const int64_t start = sequences[n].start;
    const std::vector<E>& from = position < start ? old[n] : qkv;
    const int64_t row = position < start ? position : FirstRow(n) + position - start;
    const E* const x = from.data() + (row * 3 + part) * width() + head * head_size;
    if (part == 2) return static_cast<float>(x[e]);
    const float cosine = table[position * head_size + e / 2 * 2];
    const float sine = table[position * head_size + e / 2 * 2 + 1];
    const double a = static_cast<float>(x[e / 2 * 2]), b = static_cast<float>(x[e / 2 * 2 + 1]);
    const double rotated = e % 2 == 0 ? a * cosine - b * sine : b * cosine + a * sine;
    return part == 1 ? static_cast<float>(E(static_cast<float>(rotated))) : rotated;
  }
  void Attend(const Tensor& from, std::span<const DecodeQuery> queries, const Tensor& to) {
    AttentionDecode({.qkv = from,
                     .heads = heads,
                     .rotary = rotary,
                     .page_offset = kOffset * sizeof(E),
                     .queries = queries,
                     .out = to});
  }
  void Run(std::span<const DecodeQuery> queries) {
    Attend(Tensor(qkv.data(), {rows, 3 * width()}), queries, Tensor(out.data(), {rows, width()}));
  }
  void RunAll() {
    std::vector<DecodeQuery> queries;
    for (size_t n = 0; n < sequences.size(); ++n)
      queries.push_back(Query(n, 0, sequences[n].count));
    Run(queries);
  }

  int64_t heads, head_size, rows = 1;
  std::vector<Sequence> sequences;
  std::vector<std::vector<E>> memory, old;
  std::vector<std::byte*> pointers;
  std::vector<int64_t> pages;
  std::vector<float> table;
  Tensor rotary;
  std::vector<E> qkv, out;
};

template <class E>
void ExpectTheFormula(Batch<E>& batch, double tolerance) {
  batch.RunAll();
  for (size_t n = 0; n < batch.sequences.size(); ++n) {
    for (int64_t h = 0; h < batch.heads; ++h) {
      for (int64_t t = 0; t < batch.sequences[n].count; ++t) {
        const int64_t position = batch.sequences[n].start + t;
        std::vector<double> p;
        double sum = 0, max = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j <= position; ++j) {
          double s = 0;
          for (int64_t e = 0; e < batch.head_size; ++e) {
            s += batch.At(n, 0, h, position, e) * batch.At(n, 1, h, j, e);
          }
          p.push_back(s / std::sqrt(static_cast<double>(batch.head_size)));
          max = std::max(max, p.back());
        }
        for (double& value : p) sum += value = std::exp(value - max);
        for (int64_t e = 0; e < batch.head_size; ++e) {
          double expected = 0;
          for (int64_t j = 0; j <= position; ++j) {
            expected += p[static_cast<size_t>(j)] / sum * batch.At(n, 2, h, j, e);
          }
          const int64_t at = (batch.FirstRow(n) + t) * batch.width() + h * batch.head_size + e;
          ASSERT_NEAR(static_cast<float>(batch.out[static_cast<size_t>(at)]), expected, tolerance)
              << "sequence " << n << " head " << h << " token " << t;
        }
      }
    }
  }
  for (int64_t e = 0; e < batch.width(); ++e) {
    ASSERT_EQ(static_cast<float>(batch.out[static_cast<size_t>(e)]), 7.0f)
        << "a row of no sequence was written";
  }
}

// One token, several, and chunks over several pages; empty and filled caches.
// One token comes with a last page that is up to half full, or more.
const std::vector<Sequence> kSequences = {{0, 1},  {1, 1},  {40, 1}, {15, 1}, {16, 1}, {47, 1},
                                          {48, 1}, {79, 1}, {96, 1}, {7, 3},  {0, 40}, {37, 45}};

TEST(AttentionDecode, Fp32IsTheFormula) {
  for (int64_t head_size : {2, 6, 32, 64, 72, 128}) {
    SCOPED_TRACE(head_size);
    Batch<float> batch(3, head_size, kSequences);
    ExpectTheFormula(batch, 4e-6);
  }
}

// More heads than are computed side by side, in runs that differ in length.
TEST(AttentionDecode, RunsOfHeadsAreTheFormula) {
  Batch<float> fp32(7, 64, kSequences);
  ExpectTheFormula(fp32, 4e-6);
  Batch<bf16> rounded(7, 64, kSequences);
  ExpectTheFormula(rounded, 0x1p-6);
}

TEST(AttentionDecode, Bf16IsTheFormula) {
  for (int64_t head_size : {2, 6, 32, 64, 72, 128}) {
    SCOPED_TRACE(head_size);
    Batch<bf16> batch(3, head_size, kSequences);
    ExpectTheFormula(batch, 0x1p-6);
  }
}

template <class E>
std::vector<float> Values(const std::vector<E>& values) {
  std::vector<float> floats;
  for (const E& value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

// What a token gets does not depend on the other sequences of the call, on the tokens that come in
// the same chunk, or on the threads.
template <class E>
void ExpectSameBitsAloneAndTogether() {
  Batch<E> together(7, 64, kSequences), one_by_one(7, 64, kSequences), chunks(7, 64, kSequences);
  together.RunAll();
  const int threads = NumThreads();
  SetNumThreads(1);
  for (size_t n = 0; n < kSequences.size(); ++n) {
    const int64_t count = kSequences[n].count;
    for (int64_t t = 0; t < count; ++t) {
      const DecodeQuery query = one_by_one.Query(n, t, t + 1);
      one_by_one.Run({&query, 1});
    }
    for (int64_t t = 0; t < count; t += 7) {
      const DecodeQuery query = chunks.Query(n, t, std::min(count, t + 7));
      chunks.Run({&query, 1});
    }
  }
  SetNumThreads(threads);
  EXPECT_EQ(Values(together.out), Values(one_by_one.out));
  EXPECT_EQ(Values(together.out), Values(chunks.out));
}

TEST(AttentionDecode, SameBitsAloneAndTogether) {
  ExpectSameBitsAloneAndTogether<float>();
  ExpectSameBitsAloneAndTogether<bf16>();
}

TEST(AttentionDecode, NoSequencesIsNoWork) {
  Batch<float> batch(2, 8, {});
  batch.RunAll();
  EXPECT_EQ(batch.out[0], 7.0f);
}

}  // namespace
}  // namespace denseformer

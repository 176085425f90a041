#include "kernels/attention/attention_decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"

namespace denseformer {
namespace {

struct Sequence {
  int64_t start, count;
};

// Sequences with caches of their own; rows [0, start) of each cache are filled.
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
    int64_t rows = 1;  // row 0 belongs to nobody
    for (const Sequence& s : sequences) {
      const int64_t capacity = s.start + s.count + 3;
      keys.push_back(normal(heads * capacity * head_size));
      values.push_back(normal(heads * capacity * head_size));
      const Shape shape{heads, capacity, head_size};
      queries.push_back({.row = rows,
                         .count = s.count,
                         .start = s.start,
                         .keys = Tensor(keys.back().data(), shape),
                         .values = Tensor(values.back().data(), shape)});
      rows += s.count;
    }
    qkv = normal(rows * 3 * width());
    out.assign(static_cast<size_t>(rows * width()), E(7.0f));
  }

  int64_t width() const { return heads * head_size; }
  int64_t rows() const { return static_cast<int64_t>(out.size()) / width(); }
  // Row `position` of k (part 1) or v (2) of sequence n: from the cache, or from the new tokens.
  double At(size_t n, int64_t part, int64_t head, int64_t position, int64_t e) const {
    const DecodeQuery& query = queries[n];
    if (position < query.start) {
      const std::vector<E>& cache = part == 1 ? keys[n] : values[n];
      const int64_t capacity = query.keys.shape()[1];
      return static_cast<float>(cache[(head * capacity + position) * head_size + e]);
    }
    const int64_t row = query.row + position - query.start;
    return static_cast<float>(qkv[(row * 3 + part) * width() + head * head_size + e]);
  }
  void Run() {
    AttentionDecode(Tensor(qkv.data(), {rows(), 3 * width()}), heads, queries,
                    Tensor(out.data(), {rows(), width()}));
  }

  int64_t heads, head_size;
  std::vector<Sequence> sequences;
  std::vector<std::vector<E>> keys, values;
  std::vector<DecodeQuery> queries;
  std::vector<E> qkv, out;
};

template <class E>
void ExpectTheFormula(Batch<E>& batch, double tolerance) {
  const Batch<E> before = batch;
  batch.Run();
  for (size_t n = 0; n < batch.queries.size(); ++n) {
    const DecodeQuery& query = batch.queries[n];
    for (int64_t h = 0; h < batch.heads; ++h) {
      for (int64_t t = 0; t < query.count; ++t) {
        const int64_t position = query.start + t;
        std::vector<double> p;
        double sum = 0, max = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j <= position; ++j) {
          double s = 0;
          for (int64_t e = 0; e < batch.head_size; ++e) {
            const int64_t at = (query.row + t) * 3 * batch.width() + h * batch.head_size + e;
            s += static_cast<float>(before.qkv[at]) * before.At(n, 1, h, j, e);
          }
          p.push_back(s / std::sqrt(static_cast<double>(batch.head_size)));
          max = std::max(max, p.back());
        }
        for (double& value : p) sum += value = std::exp(value - max);
        for (int64_t e = 0; e < batch.head_size; ++e) {
          double expected = 0;
          for (int64_t j = 0; j <= position; ++j) {
            expected += p[j] / sum * before.At(n, 2, h, j, e);
          }
          const int64_t at = (query.row + t) * batch.width() + h * batch.head_size + e;
          ASSERT_NEAR(static_cast<float>(batch.out[at]), expected, tolerance)
              << "sequence " << n << " head " << h << " token " << t;
          // The caches now hold the new tokens, and nothing else changed.
          const int64_t in_cache = (h * query.keys.shape()[1] + position) * batch.head_size + e;
          ASSERT_EQ(static_cast<float>(batch.keys[n][in_cache]), before.At(n, 1, h, position, e));
          ASSERT_EQ(static_cast<float>(batch.values[n][in_cache]), before.At(n, 2, h, position, e));
        }
      }
    }
  }
  for (int64_t e = 0; e < batch.width(); ++e) {
    ASSERT_EQ(static_cast<float>(batch.out[e]), 7.0f) << "row of nobody";
  }
}

// One token, several, and enough of them for the kernel of whole blocks; empty and filled caches.
const std::vector<Sequence> kSequences = {{0, 1}, {1, 1}, {40, 1}, {7, 3}, {0, 40}, {37, 45}};

TEST(AttentionDecode, Fp32IsTheFormula) {
  for (int64_t head_size : {1, 5, 32, 64, 72, 128}) {
    SCOPED_TRACE(head_size);
    Batch<float> batch(3, head_size, kSequences);
    ExpectTheFormula(batch, 2e-6);
  }
}

TEST(AttentionDecode, Bf16IsTheFormula) {
  for (int64_t head_size : {1, 5, 32, 64, 72, 128}) {
    SCOPED_TRACE(head_size);
    Batch<bf16> batch(3, head_size, kSequences);
    ExpectTheFormula(batch, 0x1p-6);
  }
}

// What a sequence gets does not depend on its company or on the threads.
TEST(AttentionDecode, SameBitsAloneAndTogether) {
  Batch<float> together(2, 64, kSequences);
  Batch<float> alone = together;
  for (size_t n = 0; n < alone.queries.size(); ++n) {
    alone.queries[n].keys = Tensor(alone.keys[n].data(), together.queries[n].keys.shape());
    alone.queries[n].values = Tensor(alone.values[n].data(), together.queries[n].values.shape());
  }
  together.Run();
  const int threads = NumThreads();
  SetNumThreads(1);
  for (const DecodeQuery& query : alone.queries) {
    AttentionDecode(Tensor(alone.qkv.data(), {alone.rows(), 3 * alone.width()}), alone.heads,
                    {&query, 1}, Tensor(alone.out.data(), {alone.rows(), alone.width()}));
  }
  SetNumThreads(threads);
  EXPECT_EQ(together.out, alone.out);
}

TEST(AttentionDecode, NoSequencesIsNoWork) {
  Batch<float> batch(2, 8, {});
  batch.Run();
  EXPECT_EQ(batch.out[0], 7.0f);
}

}  // namespace
}  // namespace denseformer

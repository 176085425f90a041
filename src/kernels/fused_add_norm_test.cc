#include "kernels/fused_add_norm.h"

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/convert.h"
#include "kernels/layernorm.h"
#include "kernels/residual.h"

namespace denseformer {
namespace {

struct Case {
  int64_t rows, cols;
  DType dtype;  // of delta, history and out
  bool average, residual, norm;
  float dropout;
};

// Everything that the pass reads and writes.
struct Memory {
  explicit Memory(const Case& c)
      : n(c.rows * c.cols),
        pattern(DepthPattern::Parse("1x1", 9)),
        arena(size_t{64} << 20),
        averager(pattern, c.rows, c.cols, arena) {
    Random random(3);
    auto fresh = [&](DType dtype, Shape shape) {
      const Tensor tensor = arena.Allocate(dtype, shape);
      for (int64_t e = 0; e < tensor.count(); ++e) {
        if (dtype == DType::kF32) {
          tensor.f32()[e] = random.Normal();
        } else {
          tensor.As<bf16>()[e] = bf16(random.Normal());
        }
      }
      return tensor;
    };
    const Shape shape = {c.rows, c.cols};
    stream = fresh(DType::kF32, shape);
    delta = fresh(c.dtype, shape);
    gain = fresh(DType::kF32, {1});
    x = fresh(DType::kF32, shape);
    y = fresh(DType::kF32, shape);
    out = fresh(c.dtype, shape);
    weight = fresh(DType::kF32, {c.cols});
    bias = fresh(DType::kF32, {c.cols});
    mean = fresh(DType::kF32, {c.rows});
    rstd = fresh(DType::kF32, {c.rows});
    for (int j = 0; j <= 9; ++j) history.push_back(fresh(c.dtype, shape));
    for (int i = 0; i <= 9; ++i) {
      alpha.push_back(fresh(DType::kF32, {10}));
      alphas.push_back(i == 0 ? nullptr : alpha[i].f32());
    }
  }

  std::vector<float> Values(const Tensor& tensor) const {
    std::vector<float> values(tensor.count());
    Convert(tensor, Tensor(values.data(), tensor.shape()));
    return values;
  }

  int64_t n;
  DepthPattern pattern;
  Arena arena;
  DepthAverager averager;
  Tensor stream, delta, gain, x, y, out, weight, bias, mean, rstd;
  std::vector<Tensor> history, alpha;
  std::vector<const float*> alphas;
};

void RunApart(const Case& c, const Dropout& dropout, int depth, Memory& m) {
  if (c.residual) ResidualForward(m.stream, m.delta, m.gain, dropout, m.x);
  Convert(m.x, m.history[depth]);
  if (c.average) m.averager.Forward(depth, m.x, m.history, m.y);
  if (c.norm) {
    LayerNormForward(c.average ? m.y : m.x, m.weight, m.bias, m.out, m.mean, m.rstd);
  }
}

void RunFused(const Case& c, const Dropout& dropout, int depth, Memory& m) {
  FusedAddNorm b;
  if (c.residual) {
    b.stream = m.stream;
    b.delta = m.delta;
    b.gain = m.gain;
    b.dropout = dropout;
  }
  b.x = m.x;
  b.kept = m.history[depth];
  if (c.average) {
    b.averager = &m.averager;
    b.depth = depth;
    b.history = m.history;
    b.y = m.y;
  }
  if (c.norm) b.norm = {m.weight, m.bias, m.out, m.mean, m.rstd};
  FusedAddNormForward(b);
}

TEST(FusedAddNormTest, SameBitsAsItsPartsOneAfterTheOther) {
  const Case cases[] = {
      {30, 768, DType::kBF16, true, true, true, 0.0f},
      {7, 768, DType::kF32, true, true, true, 0.3f},
      {41, 510, DType::kBF16, false, true, true, 0.3f},
      {3, 9000, DType::kBF16, true, false, true, 0.0f},
      {100, 33, DType::kF32, true, true, false, 0.0f},
      {1100, 510, DType::kBF16, true, true, true, 0.0f},  // kept by non-temporal stores
      {1, 1, DType::kBF16, true, true, true, 0.0f},
  };
  const int before = NumThreads();
  for (const Case& c : cases) {
    SCOPED_TRACE(Shape({c.rows, c.cols}).ToString());
    const Dropout dropout{.probability = c.dropout, .seed = 4, .stream = 8};
    for (int threads : {1, 3}) {
      SetNumThreads(threads);
      Memory apart(c), fused(c);
      apart.averager.StartForward(apart.alphas);
      fused.averager.StartForward(fused.alphas);
      for (int depth = 1; depth <= 9; ++depth) {
        RunApart(c, dropout, depth, apart);
        RunFused(c, dropout, depth, fused);
        EXPECT_EQ(apart.Values(apart.x), fused.Values(fused.x));
        EXPECT_EQ(apart.Values(apart.history[depth]), fused.Values(fused.history[depth]));
        EXPECT_EQ(apart.Values(apart.y), fused.Values(fused.y));
        EXPECT_EQ(apart.Values(apart.out), fused.Values(fused.out));
        EXPECT_EQ(apart.Values(apart.mean), fused.Values(fused.mean));
        EXPECT_EQ(apart.Values(apart.rstd), fused.Values(fused.rstd));
      }
    }
  }
  SetNumThreads(before);
}

TEST(FusedAddNormTest, WorksInPlace) {
  const Case c = {9, 96, DType::kBF16, true, true, true, 0.0f};
  Memory apart(c), fused(c);
  apart.averager.StartForward(apart.alphas);
  fused.averager.StartForward(fused.alphas);
  fused.x = fused.y = fused.stream;
  RunApart(c, Dropout(), 7, apart);
  RunFused(c, Dropout(), 7, fused);
  EXPECT_EQ(apart.Values(apart.y), fused.Values(fused.y));
  EXPECT_EQ(apart.Values(apart.out), fused.Values(fused.out));
}

}  // namespace
}  // namespace denseformer

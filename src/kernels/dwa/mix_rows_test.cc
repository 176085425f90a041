// Each primitive against its formula in double, over awkward sizes, offsets and weights of 0.
#include "kernels/dwa/mix_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace denseformer {
namespace {

constexpr int64_t kSizes[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 67, 100, 129};

// Rows at every misalignment, in fp32 and bf16.
class Rows {
 public:
  Rows(int count, int64_t cols, DType dtype, uint64_t seed) : dtype_(dtype) {
    Random random(seed);
    for (int k = 0; k < count; ++k) {
      floats_.emplace_back(cols + k % 5);
      shorts_.emplace_back(cols + k % 5);
      for (size_t e = 0; e < floats_[k].size(); ++e) {
        shorts_[k][e] = bf16(random.Normal());
        floats_[k][e] = dtype == DType::kF32 ? random.Normal() : static_cast<float>(shorts_[k][e]);
      }
    }
    for (int k = 0; k < count; ++k) {
      pointers_.push_back(dtype == DType::kF32 ? static_cast<const void*>(&floats_[k][k % 5])
                                               : &shorts_[k][k % 5]);
      views_.push_back(&floats_[k][k % 5]);
      writable_.push_back(&floats_[k][k % 5]);
    }
  }
  RowSources sources() const {
    return {static_cast<int>(pointers_.size()), pointers_.data(), dtype_};
  }
  const float* const* floats() const { return views_.data(); }
  float* const* writable() { return writable_.data(); }
  double operator()(int k, int64_t e) const { return views_[k][e]; }

 private:
  DType dtype_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<bf16>> shorts_;
  std::vector<const void*> pointers_;
  std::vector<const float*> views_;
  std::vector<float*> writable_;
};

std::vector<float> Normals(int64_t count, uint64_t seed, int zero_every = 0) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = zero_every > 0 && i % zero_every == 0 ? 0.0f : random.Normal();
  }
  return values;
}

class MixRowsTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Sources, MixRowsTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return DTypeName(info.param); });

TEST_P(MixRowsTest, DotsAndSquares) {
  for (const int64_t cols : kSizes) {
    for (int vectors = 1; vectors <= 8; ++vectors) {
      const Rows sources(5, cols, GetParam(), 1), others(vectors, cols, DType::kF32, 2);
      std::vector<float> dots(5 * vectors), squares(5);
      RowDots(sources.sources(), cols, vectors, others.floats(), dots.data());
      RowSquares(sources.sources(), cols, squares.data());
      for (int k = 0; k < 5; ++k) {
        double square = 0;
        for (int64_t e = 0; e < cols; ++e) square += sources(k, e) * sources(k, e);
        EXPECT_NEAR(squares[k], square, 1e-6 * square);
        for (int v = 0; v < vectors; ++v) {
          double dot = 0, size = 0;
          for (int64_t e = 0; e < cols; ++e) {
            dot += sources(k, e) * others(v, e);
            size += std::abs(sources(k, e) * others(v, e));
          }
          EXPECT_NEAR(dots[k * vectors + v], dot, 1e-6 * size) << cols << " " << k << " " << v;
        }
      }
    }
  }
}

TEST_P(MixRowsTest, MixesAllOutputsInOnePass) {
  for (const int64_t cols : kSizes) {
    for (int outputs = 1; outputs <= kMostStreams; ++outputs) {
      for (const bool add : {false, true}) {
        constexpr int kCount = 6;
        const Rows sources(kCount, cols, GetParam(), 3), newest(1, cols, DType::kF32, 4);
        Rows out(outputs, cols, DType::kF32, 5);
        const Rows before(outputs, cols, DType::kF32, 5);
        const std::vector<float> weights = Normals(kCount * outputs, 6, /*zero_every=*/3);
        const std::vector<float> newest_weights = Normals(outputs, 7);
        RowMix mix;
        mix.sources = sources.sources();
        mix.weights = weights.data();
        mix.newest = newest.floats()[0];
        mix.newest_weights = newest_weights.data();
        mix.outputs = outputs;
        mix.output = out.writable();
        mix.add = add;
        MixRow(mix, cols);
        for (int o = 0; o < outputs; ++o) {
          for (int64_t e = 0; e < cols; ++e) {
            double sum = newest_weights[o] * newest(0, e) + (add ? before(o, e) : 0);
            for (int k = 0; k < kCount; ++k) sum += weights[k * outputs + o] * sources(k, e);
            ASSERT_NEAR(out(o, e), sum, 1e-5) << cols << " " << outputs << " " << o << " " << e;
          }
        }
      }
    }
  }
}

// Terms of weight 0 take no part, so that the newest row passes through bit for bit, also where the
// output takes its place.
TEST_P(MixRowsTest, WeightsOfZeroTakeNoPart) {
  constexpr int64_t kCols = 37;
  Rows sources(4, kCols, DType::kF32, 1);
  sources.writable()[1][5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = Normals(kCols, 2), other(kCols), zero(kCols, 1.0f);
  x[3] = -0.0f;
  x[4] = std::numeric_limits<float>::infinity();
  const std::vector<float> expected = x;
  const std::vector<float> weights(4 * 3, 0.0f), newest_weights = {1, 1, 0};
  float* outputs[] = {x.data(), other.data(), zero.data()};
  RowMix mix;
  mix.sources = sources.sources();
  mix.weights = weights.data();
  mix.newest = x.data();
  mix.newest_weights = newest_weights.data();
  mix.outputs = 3;
  mix.output = outputs;
  MixRow(mix, kCols);
  for (int64_t e = 0; e < kCols; ++e) {
    EXPECT_EQ(std::bit_cast<uint32_t>(x[e]), std::bit_cast<uint32_t>(expected[e])) << e;
    EXPECT_EQ(std::bit_cast<uint32_t>(other[e]), std::bit_cast<uint32_t>(expected[e])) << e;
    EXPECT_EQ(std::bit_cast<uint32_t>(zero[e]), 0u) << e;
  }
}

TEST_P(MixRowsTest, PushesToEveryTarget) {
  for (const int64_t cols : kSizes) {
    for (const int inputs : {1, 2, 4, 8}) {
      for (const bool self : {false, true}) {
        constexpr int kCount = 5;
        const Rows sources(kCount, cols, GetParam(), 1), in(inputs, cols, DType::kF32, 2);
        Rows targets(kCount, cols, DType::kF32, 3);
        const Rows before(kCount, cols, DType::kF32, 3);
        const std::vector<float> weights = Normals(kCount * inputs, 4),
                                 self_weights = Normals(kCount, 5);
        const uint8_t add[kCount] = {0, 1, 0, 1, 1};
        RowPush push;
        push.sources = sources.sources();
        if (self) push.self_weights = self_weights.data();
        push.inputs = inputs;
        push.input = in.floats();
        push.weights = weights.data();
        push.target = targets.writable();
        push.add = add;
        PushRow(push, cols);
        for (int k = 0; k < kCount; ++k) {
          for (int64_t e = 0; e < cols; ++e) {
            double sum = (add[k] ? before(k, e) : 0) + (self ? self_weights[k] * sources(k, e) : 0);
            for (int v = 0; v < inputs; ++v) sum += weights[k * inputs + v] * in(v, e);
            ASSERT_NEAR(targets(k, e), sum, 1e-5) << cols << " " << inputs << " " << k << " " << e;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace denseformer

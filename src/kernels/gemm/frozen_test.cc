// Frozen weights on every backend that can run here: against plain loops in double precision, and
// the same bits whatever the number of rows.
#include "kernels/gemm/frozen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/parallel.h"
#include "base/random.h"
#include "kernels/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/operand_testing.h"
#include "kernels/rotary.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kInt8};

// A frozen matrix with random values, its memory, and what it was packed from.
struct Frozen {
  Frozen(int64_t out, int64_t in, WeightFormat format, uint64_t seed = 1)
      : values(static_cast<size_t>(out * in)),
        memory(PackedWeight::FrozenBytes(out, in, format)),
        weight(out, in, format, static_cast<std::byte*>(memory.data())) {
    Random random(seed);
    for (float& value : values) value = random.Normal();
    for (int64_t first = 0; first < out; first += kFrozenRows) {
      weight.PackRows(first, std::min(kFrozenRows, out - first), values.data() + first * in);
    }
  }
  std::vector<float> Row(int64_t row) const {
    std::vector<float> to(static_cast<size_t>(weight.in()));
    weight.ReadRow(row, to.data());
    return to;
  }

  std::vector<float> values;
  Storage memory;
  PackedWeight weight;
};

// Calls check(format) for every format on every backend.
template <class F>
void ForEachFormat(F check) {
  for (const WeightFormat format : kFormats) {
    for (const GemmBackend* backend : AvailableGemmBackends(ComputeOf(format))) {
      SCOPED_TRACE(std::string(backend->name) + " " + WeightFormatName(format));
      const ScopedGemmBackend scope(backend);
      check(format);
    }
  }
}

constexpr int64_t kShapes[][2] = {{1, 1},    {5, 7},    {24, 40},   {33, 70},
                                  {64, 256}, {96, 131}, {70, 1030}, {40, 1700}};

TEST(FrozenGemm, RowsAreThoseThatWerePacked) {
  ForEachFormat([](WeightFormat format) {
    for (const auto& [out, in] : kShapes) {
      const Frozen w(out, in, format);
      for (int64_t row = 0; row < out; ++row) {
        const std::vector<float> got = w.Row(row);
        const float* const expected = w.values.data() + row * in;
        float largest = 0;
        for (int64_t k = 0; k < in; ++k) largest = std::max(largest, std::abs(expected[k]));
        for (size_t k = 0; k < got.size(); ++k) {
          if (format == WeightFormat::kF32) {
            ASSERT_EQ(got[k], expected[k]);
          } else if (format == WeightFormat::kBF16) {
            ASSERT_EQ(got[k], static_cast<float>(bf16(expected[k])));
          } else {
            ASSERT_NEAR(got[k], expected[k], largest / 127 * 0.501);
          }
        }
      }
    }
  });
}

TEST(FrozenGemm, EqualsPlainLoops) {
  ForEachFormat([](WeightFormat format) {
    const DType compute = ComputeOf(format);
    for (const auto& [out, in] : kShapes) {
      const Frozen w(out, in, format);
      for (const int64_t rows : {1, 2, 3, 13, 60}) {
        for (const DType result : {DType::kF32, compute}) {
          const Operand x(compute, {rows, in}), bias(DType::kF32, {1, out}, 3);
          Operand y(result, {rows, out});
          LinearForward(x.tensor, w.weight, bias.tensor.Reshape({out}), y.tensor);
          double worst = 0, largest = 0;
          for (int64_t o = 0; o < out; ++o) {
            const std::vector<float> row = w.Row(o);
            for (int64_t n = 0; n < rows; ++n) {
              double sum = bias.At(o);
              for (int64_t k = 0; k < in; ++k) {
                sum += x.At(n * in + k) * row[static_cast<size_t>(k)];
              }
              worst = std::max(worst, std::abs(sum - y.At(n * out + o)));
              largest = std::max(largest, std::abs(sum));
            }
          }
          // x of an int8 GEMM is rounded to 1 / 127 of the largest of its group.
          const double rounded = format == WeightFormat::kInt8 ? 0.02 : 0.0;
          const double tolerance = (result == DType::kF32 ? 2e-6 : 5e-3) + rounded;
          EXPECT_LE(worst, tolerance * largest) << rows << "x" << out << "x" << in;
        }
      }
    }
  });
}

// What int8 GEMMs compute, whatever the instructions: exact sums of groups of 128 terms.
float Int8Result(const Operand& x, int64_t row, const int8_t* w, float w_scale) {
  constexpr int64_t kGroup = 128;
  const int64_t in = x.tensor.cols();
  float result = 0;
  for (int64_t begin = 0; begin < in; begin += kGroup) {
    const int64_t end = std::min(in, begin + kGroup);
    float largest = 0;
    for (int64_t k = begin; k < end; ++k) {
      largest = std::max(largest, std::abs(static_cast<float>(x.At(row * in + k))));
    }
    int32_t sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      const float quantized = static_cast<float>(x.At(row * in + k)) * (127 / largest);
      sum += static_cast<int32_t>(std::nearbyint(quantized)) * w[k];
    }
    const float scale = largest / 127, value = static_cast<float>(sum);
    // Highway's MulAdd rounds twice where there is no fused instruction.
    const volatile float product = value * scale;
    result =
        GetCpuFeatures().Has(CpuFeature::kAvx2) ? std::fma(value, scale, result) : product + result;
  }
  return result * w_scale;
}

TEST(FrozenGemm, Int8HasTheBitsOfExactSumsAtEveryCpuLevel) {
  for (const auto& [out, in] : kShapes) {
    const Frozen w(out, in, WeightFormat::kInt8);
    for (const int64_t rows : {1, 7, 8, 16, 17, 35, 60}) {
      const Operand x(DType::kBF16, {rows, in});
      Operand y(DType::kF32, {rows, out});
      LinearForward(x.tensor, w.weight, Tensor(), y.tensor);
      std::vector<int8_t> q(static_cast<size_t>(in));
      for (int64_t o = 0; o < out; ++o) {
        const float scale = QuantizeRow(w.values.data() + o * in, in, nullptr, q.data());
        for (int64_t n = 0; n < rows; ++n) {
          ASSERT_EQ(y.tensor.f32()[n * out + o], Int8Result(x, n, q.data(), scale))
              << n << ", " << o << " of " << rows << "x" << out << "x" << in;
        }
      }
    }
  }
}

TEST(FrozenGemm, ARowHasTheSameBitsAloneAndAmongOthers) {
  ForEachFormat([](WeightFormat format) {
    const DType compute = ComputeOf(format);
    const int threads = NumThreads();
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{70, 1030}, {96, 131}, {40, 1700}}) {
      const Frozen w(out, in, format);
      constexpr int64_t kMost = 300;
      const Operand x(compute, {kMost, in});
      Operand all(DType::kF32, {kMost, out});
      LinearForward(x.tensor, w.weight, Tensor(), all.tensor);
      for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 33, 64}) {
        SetNumThreads(rows % 2 == 0 ? 3 : 1);
        Operand few(DType::kF32, {rows, out});
        LinearForward(x.tensor.Rows(kMost - rows, rows), w.weight, Tensor(), few.tensor);
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(few.SameRow(r, all, kMost - rows + r)) << r << " of " << rows;
        }
      }
      SetNumThreads(threads);
    }
  });
}

TEST(FrozenGemm, EpiloguesHaveTheBitsOfSeparatePasses) {
  ForEachFormat([](WeightFormat format) {
    const DType compute = ComputeOf(format);
    constexpr int64_t kHeads = 3, kHeadSize = 8, kWidth = kHeads * kHeadSize, kOut = 3 * kWidth;
    const Frozen w(kOut, kWidth, format);
    const Operand x(compute, {22, kWidth}), bias(DType::kF32, {1, kOut}, 3);
    const Tensor b = bias.tensor.Reshape({kOut});
    Operand plain(compute, {22, kOut}), gelu(compute, {22, kOut}), fc(compute, {22, kOut}),
        fused(compute, {22, kOut}), alone(compute, {22, kOut});
    LinearForward(x.tensor, w.weight, b, plain.tensor);
    GeluForward(plain.tensor, gelu.tensor);
    LinearGeluForward(x.tensor, w.weight, b, fc.tensor, fused.tensor);
    LinearGeluForward(x.tensor, w.weight, b, Tensor(), alone.tensor);
    const size_t bytes = plain.tensor.bytes();
    EXPECT_EQ(0, std::memcmp(plain.tensor.raw(), fc.tensor.raw(), bytes));
    EXPECT_EQ(0, std::memcmp(gelu.tensor.raw(), fused.tensor.raw(), bytes));
    EXPECT_EQ(0, std::memcmp(gelu.tensor.raw(), alone.tensor.raw(), bytes));
    Operand table(DType::kF32, {11, kHeadSize}), rotated(compute, {22, kOut});
    FillRotaryTable(10000, table.tensor);
    RotaryForward(table.tensor, kHeads, plain.tensor.Reshape({2, 11, kOut}));
    LinearRotaryForward(x.tensor, w.weight, b, table.tensor, kHeads,
                        rotated.tensor.Reshape({2, 11, kOut}));
    EXPECT_EQ(0, std::memcmp(plain.tensor.raw(), rotated.tensor.raw(), bytes));
  });
}

TEST(FrozenGemm, WhatIsNotFiniteStaysSo) {
  ForEachFormat([](WeightFormat format) {
    constexpr int64_t kIn = 300;
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      const Frozen w(40, kIn, format);
      Operand x(ComputeOf(format), {3, kIn}), y(DType::kF32, {3, 40});
      x.Set(kIn + 290, bad);
      LinearForward(x.tensor, w.weight, Tensor(), y.tensor);
      for (int64_t o = 0; o < 40; ++o) {
        EXPECT_TRUE(std::isfinite(y.At(o)) && !std::isfinite(y.At(40 + o)) &&
                    std::isfinite(y.At(80 + o)));
      }
      std::vector<float> row(kIn, 1.0f);
      row[7] = bad;
      Frozen damaged(1, kIn, format);
      damaged.weight.PackRows(0, 1, row.data());
      Operand ones(ComputeOf(format), {1, kIn}), sum(DType::kF32, {1, 1});
      LinearForward(ones.tensor, damaged.weight, Tensor(), sum.tensor);
      EXPECT_FALSE(std::isfinite(sum.At(0)));
    }
  });
}

TEST(FrozenGemm, QuantizedRowsCanBePackedAgain) {
  constexpr int64_t kIn = 700;
  const Frozen w(64, kIn, WeightFormat::kInt8);
  Frozen again(64, kIn, WeightFormat::kInt8, 9);
  for (int64_t row = 0; row < 64; row += kFrozenRows) {
    std::vector<float> rows, scales;
    for (int64_t r = row; r < row + kFrozenRows; ++r) {
      const std::vector<float> values = w.Row(r);
      rows.insert(rows.end(), values.begin(), values.end());
      std::vector<int8_t> q(static_cast<size_t>(kIn));
      scales.push_back(QuantizeRow(w.values.data() + r * kIn, kIn, nullptr, q.data()));
    }
    again.weight.PackRows(row, kFrozenRows, rows.data(), scales.data());
  }
  EXPECT_EQ(0, std::memcmp(w.memory.data(), again.memory.data(), w.memory.bytes()));
}

}  // namespace
}  // namespace denseformer

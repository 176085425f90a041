// GEMMs on every backend that can run here, against plain loops in double precision.
#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/gelu.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/operand_testing.h"
#include "kernels/rotary.h"

namespace denseformer {
namespace {

double Rounded(double value, DType dtype) {
  return dtype == DType::kF32 ? value : static_cast<float>(bf16(static_cast<float>(value)));
}

struct Case {
  const GemmBackend* backend;
  int64_t rows, out, in;
  DType compute, result;
  bool bias;
};

// The name of the case among the tests.
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.backend->name << " " << c.rows << "x" << c.out << "x" << c.in << " "
       << DTypeName(c.compute) << " to " << DTypeName(c.result) << (c.bias ? " with bias" : "");
}

class Gemm : public ::testing::TestWithParam<Case> {
 private:
  ScopedGemmBackend backend_{GetParam().backend};
};

// Calls check(backend, compute) for every backend and compute dtype.
template <class F>
void ForEachBackend(F check) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    for (const GemmBackend* backend : AvailableGemmBackends(compute)) {
      SCOPED_TRACE(std::string(backend->name) + " " + DTypeName(compute));
      const ScopedGemmBackend scope(backend);
      check(*backend, compute);
    }
  }
}

// Largest error relative to the largest value: sums in fp32, the result maybe rounded to bf16.
double Tolerance(DType result) { return result == DType::kF32 ? 2e-6 : 5e-3; }

TEST_P(Gemm, ForwardAndInputGradient) {
  const Case c = GetParam();
  Operand w(DType::kF32, {c.out, c.in}, 1), x(c.compute, {c.rows, c.in}, 2);
  Operand bias(DType::kF32, {c.out}, 3), y(c.result, {c.rows, c.out}, 4);
  PackedWeight packed(w.tensor, c.compute);
  packed.Refresh();
  LinearForward(x.tensor, packed, c.bias ? bias.tensor : Tensor(), y.tensor);
  double worst = 0, largest = 0;
  for (int64_t n = 0; n < c.rows; ++n) {
    for (int64_t o = 0; o < c.out; ++o) {
      double sum = c.bias ? bias.At(o) : 0;
      for (int64_t i = 0; i < c.in; ++i)
        sum += x.At(n * c.in + i) * Rounded(w.At(o * c.in + i), c.compute);
      worst = std::max(worst, std::abs(sum - y.At(n * c.out + o)));
      largest = std::max(largest, std::abs(sum));
    }
  }
  EXPECT_LE(worst, Tolerance(c.result) * largest);

  Operand dy(c.compute, {c.rows, c.out}, 5), dx(c.result, {c.rows, c.in}, 6);
  LinearBackwardInput(dy.tensor, packed, dx.tensor);
  worst = largest = 0;
  for (int64_t n = 0; n < c.rows; ++n) {
    for (int64_t i = 0; i < c.in; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < c.out; ++o)
        sum += dy.At(n * c.out + o) * Rounded(w.At(o * c.in + i), c.compute);
      worst = std::max(worst, std::abs(sum - dx.At(n * c.in + i)));
      largest = std::max(largest, std::abs(sum));
    }
  }
  EXPECT_LE(worst, Tolerance(c.result) * largest);
}

TEST_P(Gemm, WeightGradientIsStoredOrAddedTo) {
  const Case c = GetParam();
  Operand dy(c.compute, {c.rows, c.out}, 7), x(c.compute, {c.rows, c.in}, 8);
  Operand stored(DType::kF32, {c.out, c.in}, 9), added(DType::kF32, {c.out, c.in}, 9),
      before(DType::kF32, {c.out, c.in}, 9);
  double stored_squares = -1, added_squares = -1;
  LinearBackwardWeight(dy.tensor, x.tensor, stored.tensor, /*add=*/false, &stored_squares);
  LinearBackwardWeight(dy.tensor, x.tensor, added.tensor, /*add=*/true, &added_squares);
  double worst = 0, largest = 0, expected_stored = 0, expected_added = 0;
  for (int64_t o = 0; o < c.out; ++o) {
    for (int64_t i = 0; i < c.in; ++i) {
      const int64_t at = o * c.in + i;
      double sum = 0;
      for (int64_t n = 0; n < c.rows; ++n) sum += dy.At(n * c.out + o) * x.At(n * c.in + i);
      worst = std::max(
          {worst, std::abs(sum - stored.At(at)), std::abs(sum + before.At(at) - added.At(at))});
      largest = std::max(largest, std::abs(sum));
      expected_stored += stored.At(at) * stored.At(at);
      expected_added += added.At(at) * added.At(at);
    }
  }
  EXPECT_LE(worst, 2e-6 * largest);
  EXPECT_NEAR(stored_squares, expected_stored, 1e-6 * expected_stored);
  EXPECT_NEAR(added_squares, expected_added, 1e-6 * expected_added);
}

TEST_P(Gemm, BiasGradientIsAddedTo) {
  const Case c = GetParam();
  Operand dy(c.compute, {c.rows, c.out}, 7);
  Operand db(DType::kF32, {c.out}, 10), db_before(DType::kF32, {c.out}, 10);
  LinearBackwardBias(dy.tensor, db.tensor);
  for (int64_t o = 0; o < c.out; ++o) {
    double sum = db_before.At(o);
    for (int64_t n = 0; n < c.rows; ++n) sum += dy.At(n * c.out + o);
    EXPECT_NEAR(db.At(o), sum, 2e-5 * std::sqrt(static_cast<double>(c.rows) + 1));
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  // The first line: blocks of each height. The last: sums of so many terms that they are made in
  // portions, and results so large that they bypass the cache.
  const int64_t shapes[][3] = {{1, 1, 1},       {3, 5, 7},       {33, 24, 40},     {65, 96, 32},
                               {256, 128, 64},  {7, 1000, 48},   {300, 200, 1100}, {80, 33, 70},
                               {157, 4500, 37}, {130, 21, 4133}, {1200, 1056, 32}};
  for (const auto& s : shapes) {
    for (const GemmBackend* backend : AvailableGemmBackends(DType::kF32)) {
      cases.push_back({backend, s[0], s[1], s[2], DType::kF32, DType::kF32, true});
    }
    for (const GemmBackend* backend : AvailableGemmBackends(DType::kBF16)) {
      cases.push_back({backend, s[0], s[1], s[2], DType::kBF16, DType::kF32, false});
      cases.push_back({backend, s[0], s[1], s[2], DType::kBF16, DType::kBF16, true});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gemm, ::testing::ValuesIn(Cases()));

// The bits of GEMM and GELU in two passes; also of what is not a number.
TEST_P(Gemm, WithGelu) {
  const Case& c = GetParam();
  Operand x(c.compute, {c.rows, c.in}, 1), w(DType::kF32, {c.out, c.in}, 2);
  Operand bias(DType::kF32, {c.out}, 3);
  for (int64_t i = 0; i < c.out; ++i) bias.Set(i, static_cast<float>(bias.At(i)) * 4);
  bias.Set(0, std::nanf(""));
  bias.Set(c.out / 2, HUGE_VALF);
  bias.Set(c.out - 1, -HUGE_VALF);
  PackedWeight packed(w.tensor, c.compute);
  packed.Refresh();
  const Shape shape{c.rows, c.out};
  for (const Tensor& b : {Tensor(), bias.tensor}) {
    Operand fc(c.compute, shape, 4), gelu(c.compute, shape, 5), fused_fc(c.compute, shape, 6),
        fused(c.compute, shape, 7), alone(c.compute, shape, 8);
    LinearForward(x.tensor, packed, b, fc.tensor);
    GeluForward(fc.tensor, gelu.tensor);
    LinearGeluForward(x.tensor, packed, b, fused_fc.tensor, fused.tensor);
    LinearGeluForward(x.tensor, packed, b, Tensor(), alone.tensor);
    const size_t bytes = fc.tensor.bytes();
    EXPECT_EQ(0, std::memcmp(fc.tensor.raw(), fused_fc.tensor.raw(), bytes));
    EXPECT_EQ(0, std::memcmp(gelu.tensor.raw(), fused.tensor.raw(), bytes));
    EXPECT_EQ(0, std::memcmp(gelu.tensor.raw(), alone.tensor.raw(), bytes));
  }
}

// Heads of whole blocks and others; sequences that end within a block of rows.
TEST(GemmRotary, HasTheBitsOfTwoPasses) {
  ForEachBackend([](const GemmBackend&, DType compute) {
    for (const auto& [heads, head_size] : {std::pair<int64_t, int64_t>{2, 64}, {3, 32}, {3, 8}}) {
      const int64_t sequences = 5, time = 23, width = heads * head_size;
      Operand x(compute, {sequences * time, width}, 1), w(DType::kF32, {3 * width, width}, 2);
      Operand bias(DType::kF32, {3 * width}, 3), table(DType::kF32, {time + 2, head_size}, 4);
      FillRotaryTable(10000, table.tensor);
      PackedWeight packed(w.tensor, compute);
      packed.Refresh();
      Operand expected(compute, {sequences, time, 3 * width}, 5);
      Operand actual(compute, {sequences, time, 3 * width}, 6);
      LinearForward(x.tensor, packed, bias.tensor, expected.tensor);
      RotaryForward(table.tensor, heads, expected.tensor);
      LinearRotaryForward(x.tensor, packed, bias.tensor, table.tensor, heads, actual.tensor);
      EXPECT_EQ(0,
                std::memcmp(expected.tensor.raw(), actual.tensor.raw(), expected.tensor.bytes()));
    }
  });
}

TEST(GemmThreads, WeightGradientHasTheSameBits) {
  ForEachBackend([](const GemmBackend&, DType dtype) {
    Operand dy(dtype, {512, 96}, 1), x(dtype, {512, 64}, 2);
    std::vector<float> first;
    double first_squares = 0;
    const int threads = NumThreads();
    for (int n : {1, 2, 3, 4}) {
      SetNumThreads(n);
      Operand dw(DType::kF32, {96, 64}, 3);
      double squares;
      LinearBackwardWeight(dy.tensor, x.tensor, dw.tensor, /*add=*/true, &squares);
      std::vector<float> bits(dw.tensor.f32(), dw.tensor.f32() + dw.tensor.count());
      if (first.empty()) {
        first = bits;
        first_squares = squares;
      }
      EXPECT_EQ(squares, first_squares) << n << " threads";
      EXPECT_EQ(0, std::memcmp(first.data(), bits.data(), bits.size() * 4)) << n << " threads";
    }
    SetNumThreads(threads);
  });
}

int ThreadsOfProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// Ends the process with the number of threads that GEMMs with one started beside it.
[[noreturn]] void CountThreads(DType compute) {
  SetNumThreads(1);
  const int before = ThreadsOfProcess();
  Operand w(DType::kF32, {256, 256}, 1), x(compute, {512, 256}, 2), y(compute, {512, 256}, 3);
  PackedWeight packed(w.tensor, compute);
  packed.Change([](int64_t, int64_t) {});
  LinearForward(x.tensor, packed, Tensor(), y.tensor);
  LinearBackwardInput(y.tensor, packed, x.tensor);
  LinearBackwardWeight(y.tensor, x.tensor, w.tensor, /*add=*/false);
  std::_Exit(ThreadsOfProcess() - before);
}

TEST(GemmThreadsDeathTest, OneMeansOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ForEachBackend([](const GemmBackend&, DType compute) {
    EXPECT_EXIT(CountThreads(compute), testing::ExitedWithCode(0), "");
  });
}

TEST(GemmEmpty, NoRowsIsNoWork) {
  ForEachBackend([](const GemmBackend&, DType compute) {
    Operand w(DType::kF32, {4, 4}, 1), none(compute, {1, 4}, 2);
    PackedWeight packed(w.tensor, compute);
    const Tensor empty = none.tensor.Rows(0, 0);
    LinearForward(empty, packed, Tensor(), empty);
    LinearGeluForward(empty, packed, Tensor(), empty, empty);
    LinearBackwardInput(empty, packed, empty);
    const double before = w.At(3);
    LinearBackwardWeight(empty, empty, w.tensor, /*add=*/true);
    EXPECT_EQ(w.At(3), before);
    LinearBackwardWeight(empty, empty, w.tensor, /*add=*/false);
    for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(w.At(i), 0);
  });
}

// Rows changed one band at a time give the copies of a change of all.
TEST(GemmChange, CopiesFollow) {
  ForEachBackend([](const GemmBackend&, DType compute) {
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{1, 1}, {77, 45}, {64, 96}}) {
      Operand w(DType::kF32, {out, in}, 1), target(DType::kF32, {out, in}, 2);
      Operand x(compute, {5, in}, 3), dy(compute, {5, out}, 4);
      const Shape y_shape{5, out}, dx_shape{5, in};
      const auto results = [&](const PackedWeight& packed) {
        Operand y(DType::kF32, y_shape, 5), dx(DType::kF32, dx_shape, 6);
        LinearForward(x.tensor, packed, Tensor(), y.tensor);
        LinearBackwardInput(dy.tensor, packed, dx.tensor);
        std::vector<float> all(y.tensor.f32(), y.tensor.f32() + y.tensor.count());
        all.insert(all.end(), dx.tensor.f32(), dx.tensor.f32() + dx.tensor.count());
        return all;
      };
      PackedWeight expected(target.tensor, compute), packed(w.tensor, compute);
      expected.Refresh();
      packed.Refresh();
      ASSERT_NE(results(packed), results(expected));
      std::vector<std::atomic<int>> changed(static_cast<size_t>(out));
      packed.Change([&, columns = in](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) ++changed[static_cast<size_t>(r)];
        std::copy(target.tensor.f32() + first * columns, target.tensor.f32() + last * columns,
                  w.tensor.f32() + first * columns);
      });
      for (const std::atomic<int>& times : changed) EXPECT_EQ(times, 1);
      EXPECT_EQ(results(packed), results(expected));
    }
  });
}

}  // namespace
}  // namespace denseformer

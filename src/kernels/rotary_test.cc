#include "kernels/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using reference::Values;
using testing::Buffer;
using testing::ExpectClose;

struct Case {
  int64_t batch, time, heads, head_size;
};
const Case kCases[] = {{1, 1, 1, 2},  {2, 3, 1, 2},   {2, 5, 3, 6},    {1, 9, 2, 10},
                       {3, 7, 2, 16}, {2, 17, 3, 18}, {1, 300, 2, 64}, {2, 5, 1, 128}};

TEST(Rotary, AgreesWithReferenceAndTurnsBack) {
  for (const Case& c : kCases) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{} x {} x {} x {}", c.batch, c.time, c.heads, c.head_size));
      const Shape shape{c.batch, c.time, 3 * c.heads * c.head_size};
      Buffer qkv(dtype, shape, 1), table(DType::kF32, {c.time + 2, c.head_size}, 3);
      FillRotaryTable(10000, table);
      const Values before = qkv.FillNormal(1).values();
      RotaryForward(table, c.heads, qkv);
      ExpectClose(qkv, reference::Rotary(before, c.time, c.heads, c.head_size, 10000, 1), 2e-7);
      const Values rotated = qkv.values();
      RotaryBackward(table, c.heads, qkv);
      ExpectClose(qkv, reference::Rotary(rotated, c.time, c.heads, c.head_size, 10000, -1), 2e-7);
      if (dtype == DType::kF32) ExpectClose(qkv, before, 3e-7);
    }
  }
}

TEST(Rotary, TableHasAnglesInDoublePrecision) {
  Buffer table(DType::kF32, {2048, 64});
  FillRotaryTable(10000, table);
  for (int64_t t : {0, 1, 1000, 2047}) {
    for (int64_t m : {0, 1, 31}) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * m / 64);
      EXPECT_EQ(table.tensor().f32()[t * 64 + 2 * m], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table.tensor().f32()[t * 64 + 2 * m + 1], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(Rotary, NonFiniteValuesStayInTheirPair) {
  Buffer qkv(DType::kF32, {1, 3, 3 * 34}), table(DType::kF32, {3, 34});
  FillRotaryTable(10000, table);
  qkv.FillNormal(1);
  qkv.Set(102 + 7, testing::kNaN);
  qkv.Set(102 + 66, testing::kInfinity);
  const Values before = qkv.values();
  RotaryForward(table, 1, qkv);
  ExpectClose(qkv, reference::Rotary(before, 3, 1, 34, 10000, 1), 2e-7);
}

TEST(Rotary, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    Buffer qkv(DType::kBF16, {3, 40, 3 * 48}), table(DType::kF32, {40, 24});
    FillRotaryTable(10000, table);
    qkv.FillNormal(1);
    RotaryForward(table, 2, qkv);
    return testing::Bytes({&qkv, &table});
  });
}

// The gradient of a rotation is the rotation back.
TEST(Rotary, ReferenceGradientIsTheDerivative) {
  Buffer qkv(DType::kF32, {1, 3, 12}), dout(DType::kF32, {1, 3, 12});
  const Values x = qkv.FillNormal(1).values(), dy = dout.FillNormal(2).values();
  const Values by_x = reference::FiniteDifference(x, dy, 1e-3, [](const Values& v) {
    return reference::Rotary(v, /*time=*/3, /*heads=*/1, /*head_size=*/4, 10000, 1);
  });
  const Values gradient = reference::Rotary(dy, 3, 1, 4, 10000, -1);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(gradient[i], by_x[i], 1e-9);
}

}  // namespace
}  // namespace denseformer

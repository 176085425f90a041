#include "tensor/tensor.h"

#include <cstdint>
#include <vector>

#include "base/error_testing.h"

namespace denseformer {
namespace {

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(Shape().count(), 1);
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().ToString(), "[]");
  const Shape shape{3, 768};
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape[1], 768);
  EXPECT_EQ(shape.count(), 3 * 768);
  EXPECT_EQ(shape.ToString(), "[3, 768]");
  EXPECT_EQ((Shape{5, 0, 2}).count(), 0);
}

TEST(Shape, ComparesRankAndDimensions) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
  Shape grown{2};
  grown.Append(3);
  EXPECT_EQ(grown, (Shape{2, 3}));
}

TEST(Shape, RefusesWhatCannotBe) {
  ExpectError(ErrorCode::kInternal, "kMostDims", [] { Shape{1, 2, 3, 4, 5}; });
  ExpectError(ErrorCode::kInternal, "dim >= 0", [] { Shape{-1}; });
  ExpectError(ErrorCode::kInternal, "overflow", [] { Shape{INT64_MAX / 2, 3}.count(); });
}

TEST(Tensor, IsAMatrixOfItsLastDimension) {
  std::vector<float> data(24);
  const Tensor tensor(data.data(), {2, 3, 4});
  EXPECT_EQ(tensor.rows(), 6);
  EXPECT_EQ(tensor.cols(), 4);
  EXPECT_EQ(tensor.count(), 24);
  EXPECT_EQ(tensor.bytes(), 96u);
  EXPECT_FALSE(tensor.empty());
  EXPECT_EQ(tensor.f32(), data.data());

  const Tensor scalar(data.data(), {});
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.cols(), 1);
  const Tensor no_columns(data.data(), {3, 0});
  EXPECT_EQ(no_columns.rows(), 0);
  EXPECT_TRUE(Tensor().empty());
}

TEST(Tensor, RowsAreAView) {
  std::vector<bf16> data(12);
  const Tensor tensor(data.data(), {4, 3});
  const Tensor rows = tensor.Rows(1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(rows.As<bf16>(), data.data() + 3);
  EXPECT_EQ(tensor.Rows(4, 0).rows(), 0);
  ExpectError(ErrorCode::kInternal, "rows()", [&] { tensor.Rows(3, 2); });
  ExpectError(ErrorCode::kInternal, "begin >= 0", [&] { tensor.Rows(-1, 1); });
  // A tensor that was only measured has no memory, and neither have its rows.
  EXPECT_TRUE(Tensor(nullptr, DType::kF32, {4, 3}).Rows(2, 1).empty());
}

TEST(Tensor, Reshape) {
  std::vector<float> data(6);
  const Tensor tensor(data.data(), {2, 3});
  EXPECT_EQ(tensor.Reshape({3, 2}).shape(), (Shape{3, 2}));
  EXPECT_EQ(tensor.Reshape({6}).raw(), data.data());
  ExpectError(ErrorCode::kInternal, "count()", [&] { tensor.Reshape({4}); });
}

TEST(Tensor, TheTypeMustMatch) {
  std::vector<bf16> data(1);
  const Tensor tensor(data.data(), {1});
  EXPECT_EQ(tensor.dtype(), DType::kBF16);
  EXPECT_EQ(tensor.As<const bf16>(), data.data());
  ExpectError(ErrorCode::kInternal, "tensor is bf16", [&] { tensor.f32(); });
}

}  // namespace
}  // namespace denseformer

#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using reference::Values;
using testing::Buffer;

std::vector<int32_t> Tokens(int64_t n, int64_t vocabulary) {
  Random random(9);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(vocabulary));
  return tokens;
}

TEST(Embedding, ForwardCopiesRows) {
  for (int64_t cols : testing::kAwkwardSizes) {
    for (int64_t n : {0, 1, 40}) {
      Buffer weight(DType::kF32, {5, cols}, 1), out(DType::kF32, {n, cols}, 3);
      weight.FillNormal(1);
      weight.Set(0, testing::kNaN);
      const auto tokens = Tokens(n, 5);
      EmbeddingForward(tokens, weight, out);
      Values expected;
      const Values w = weight.values();
      for (int32_t token : tokens) {
        expected.insert(expected.end(), &w[token * cols], &w[token * cols] + cols);
      }
      testing::ExpectClose(out, expected, 0);
    }
  }
}

TEST(Embedding, BackwardAddsInTheOrderOfTokens) {
  for (int64_t cols : testing::kAwkwardSizes) {
    Buffer dweight(DType::kF32, {5, cols}, 1), dout(DType::kF32, {40, cols}, 3);
    dweight.FillNormal(1);
    dout.FillNormal(2);
    dout.Set(3, testing::kInfinity);
    const auto tokens = Tokens(40, 5);
    Values expected = dweight.values();
    const Values rows = dout.values();
    for (size_t n = 0; n < tokens.size(); ++n) {
      for (int64_t i = 0; i < cols; ++i) {
        double& sum = expected[tokens[n] * cols + i];
        sum = static_cast<float>(sum) + static_cast<float>(rows[n * cols + i]);
      }
    }
    EmbeddingBackward(tokens, dout, dweight);
    testing::ExpectClose(dweight, expected, 0);  // the same order gives the same bits
  }
}

TEST(Embedding, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    Buffer dweight(DType::kF32, {7, 300}), dout(DType::kF32, {200, 300});
    dout.FillNormal(2);
    EmbeddingBackward(Tokens(200, 7), dout, dweight);
    return dweight.bytes();
  });
}

TEST(Embedding, RefusesTokensOutsideTheTable) {
  Buffer weight(DType::kF32, {5, 4}), out(DType::kF32, {1, 4});
  for (int32_t token : {-1, 5}) {
    const std::vector<int32_t> tokens = {token};
    EXPECT_NE(ErrorOf([&] { EmbeddingForward(tokens, weight, out); }).find("token"),
              std::string::npos);
    EXPECT_NE(ErrorOf([&] { EmbeddingBackward(tokens, out, weight); }).find("token"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace denseformer

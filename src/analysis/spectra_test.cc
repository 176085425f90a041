#include "analysis/spectra.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "denseformer/error.h"

namespace denseformer {
namespace {

// Rotates rows p and q of a [rows, cols]: an orthogonal change that leaves singular values alone.
void Rotate(std::vector<float>& a, int64_t cols, int64_t p, int64_t q, double angle) {
  for (int64_t j = 0; j < cols; ++j) {
    const double x = a[p * cols + j], y = a[q * cols + j];
    a[p * cols + j] = static_cast<float>(std::cos(angle) * x - std::sin(angle) * y);
    a[q * cols + j] = static_cast<float>(std::sin(angle) * x + std::cos(angle) * y);
  }
}

TEST(SingularValues, KnownOnesSurviveRotations) {
  // A diagonal matrix, rows rotated at random: its singular values are known without any solver.
  for (auto [rows, cols] : {std::pair<int64_t, int64_t>{7, 5}, {5, 7}, {6, 6}, {1, 3}, {3, 1}}) {
    const int64_t n = std::min(rows, cols);
    std::vector<float> a(rows * cols);
    for (int64_t i = 0; i < n; ++i) a[i * cols + i] = static_cast<float>(n - i) * 0.5f;
    Random random(3);
    for (int64_t p = 0; p < rows; ++p) {
      for (int64_t q = p + 1; q < rows; ++q) Rotate(a, cols, p, q, 6.0 * random.Uniform());
    }
    const std::vector<double> values = SingularValues(Tensor(a.data(), {rows, cols}));
    ASSERT_EQ(values.size(), static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(values[i], 0.5 * static_cast<double>(n - i), 1e-5);
  }
}

TEST(SingularValues, SquaresSumToTheSquaredNorm) {
  Random random(5);
  std::vector<float> a(40 * 24);
  double norm = 0;
  for (float& value : a) {
    value = random.Normal();
    norm += static_cast<double>(value) * value;
  }
  double sum = 0;
  for (double value : SingularValues(Tensor(a.data(), {40, 24}))) sum += value * value;
  EXPECT_NEAR(sum, norm, 1e-9 * norm);
}

TEST(SingularValues, ANumberThatIsNoneIsAnError) {
  std::vector<float> a = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(SingularValues(Tensor(a.data(), {1, 2})), Error);
}

TEST(WeightSpectra, FiveGroups) {
  Model model(ModelConfig::Preset("test"), DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  const std::vector<Spectrum> spectra = WeightSpectra(model);
  ASSERT_EQ(spectra.size(), 5u);
  EXPECT_EQ(spectra[0].matrices, 4);
  EXPECT_EQ(spectra[4].matrices, 1);
  for (const Spectrum& spectrum : spectra) {
    EXPECT_EQ(spectrum.values.size(), 32u);
    EXPECT_TRUE(std::is_sorted(spectrum.values.rbegin(), spectrum.values.rend()));
  }
  double mean = 0;
  for (int block = 0; block < 4; ++block)
    mean += SingularValues(model.tensors().blocks[block].fc_weight)[3] / 4;
  EXPECT_NEAR(spectra[2].values[3], mean, 1e-12);
}

}  // namespace
}  // namespace denseformer

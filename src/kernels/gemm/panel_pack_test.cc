// Packed panels and quantized rows against plain loops, element by element.
#include "kernels/gemm/panel_pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/gemm/frozen.h"

namespace denseformer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kColumns[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 130, 255, 257, 511, 770, 1029};

float PlainQuantizeRow(const float* row, int64_t n, const float* given, int8_t* q) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(row[i]));
    finite = finite && std::isfinite(row[i]);
  }
  const float step = given != nullptr ? *given : finite ? largest / 127 : NAN;
  for (int64_t i = 0; i < n; ++i) {
    const bool usable = std::isfinite(step) && step > 0;
    const float value = usable ? std::nearbyint(row[i] / step) : 0.0f;
    q[i] = static_cast<int8_t>(std::clamp(value, -127.0f, 127.0f));
  }
  return step;
}

// The layout of gemm_panels.h, one element after another.
std::vector<std::byte> PlainPanel(WeightFormat format, const std::vector<float>& rows,
                                  int64_t count, int64_t in, const float* given) {
  const int64_t terms = TermsPerWord(format), size = 4 / terms;
  std::vector<std::byte> panel(static_cast<size_t>(WordsOf(in, format) * 4) * kPanelRows);
  std::vector<int8_t> q(static_cast<size_t>(in));
  for (int64_t r = 0; r < count; ++r) {
    const float* const row = rows.data() + r * in;
    PlainQuantizeRow(row, in, given == nullptr ? nullptr : given + r, q.data());
    for (int64_t k = 0; k < in; ++k) {
      const bf16 rounded(row[k]);
      const uint8_t shifted = static_cast<uint8_t>(q[static_cast<size_t>(k)] + 128);
      const void* const from = format == WeightFormat::kF32    ? static_cast<const void*>(row + k)
                               : format == WeightFormat::kBF16 ? static_cast<const void*>(&rounded)
                                                               : &shifted;
      const int64_t at = (k / terms * static_cast<int64_t>(kPanelRows) + r) * 4 + k % terms * size;
      std::memcpy(panel.data() + at, from, static_cast<size_t>(size));
    }
  }
  return panel;
}

TEST(PanelPackTest, EqualsPlainLoops) {
  Random random(1);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kInt8}) {
    for (const int64_t in : kColumns) {
      for (const int64_t count : {1, 3, 4, 31, 32}) {
        std::vector<float> rows(static_cast<size_t>(count * in));
        for (float& value : rows) value = random.Normal();
        rows.back() = 1e-41f;  // denormal
        if (count == 31) rows[0] = kInfinity;
        if (count == 4) std::fill_n(rows.begin(), in, 0.0f);
        std::vector<float> given(kPanelRows);
        for (float& scale : given) scale = 0.01f + random.Uniform();
        const bool int8 = format == WeightFormat::kInt8;
        const float* const none = nullptr;
        for (const float* scales : {none, std::as_const(given).data()}) {
          if (scales != nullptr && (!int8 || count == 31)) continue;
          const std::vector<std::byte> expected = PlainPanel(format, rows, count, in, scales);
          std::vector<std::byte> panel(expected.size(), std::byte{0x55});
          std::vector<float> used(kPanelRows, -1.0f);
          PackPanel(format, rows.data(), count, in, scales, panel.data(),
                    int8 ? used.data() : nullptr);
          // Columns of rows that do not exist, and terms beyond the last.
          EXPECT_EQ(panel, expected) << WeightFormatName(format) << " " << count << " x " << in;
          for (int64_t r = 0; int8 && r < count; ++r) {
            std::vector<int8_t> q(static_cast<size_t>(in));
            const float step = PlainQuantizeRow(rows.data() + r * in, in,
                                                scales == nullptr ? nullptr : scales + r, q.data());
            const float got = used[static_cast<size_t>(r)];
            EXPECT_TRUE(got == step || (std::isnan(got) && std::isnan(step))) << got << " " << step;
          }
          EXPECT_EQ(count < 32 ? used[static_cast<size_t>(count)] : -1.0f, -1.0f);
        }
      }
    }
  }
}

TEST(PanelPackTest, QuantizedRowsEqualPlainLoops) {
  Random random(2);
  for (const int64_t n : kColumns) {
    for (const float odd : {0.0f, -0.0f, 1.0f, kInfinity, -kInfinity, NAN, 1e38f, 1e-44f}) {
      // Not aligned, and nothing behind it may be touched.
      std::vector<float> values(static_cast<size_t>(n) + 1);
      for (float& value : values) value = random.Normal();
      float* const row = values.data() + 1;
      row[n / 2] = odd;
      std::vector<int8_t> expected(static_cast<size_t>(n)), q(static_cast<size_t>(n) + 1, 77);
      const float step = PlainQuantizeRow(row, n, nullptr, expected.data());
      const float got = QuantizeRow(row, n, nullptr, q.data());
      EXPECT_TRUE(got == step || (std::isnan(got) && std::isnan(step))) << got << " " << step;
      EXPECT_EQ(q.back(), 77);
      q.pop_back();
      EXPECT_EQ(q, expected) << n << " " << odd;
    }
  }
}

}  // namespace
}  // namespace denseformer

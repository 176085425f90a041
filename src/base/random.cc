#include "base/random.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace denseformer {

Random4 Philox(uint64_t key, uint64_t stream, uint64_t counter) {
  uint32_t x0 = static_cast<uint32_t>(counter), x1 = static_cast<uint32_t>(counter >> 32);
  uint32_t x2 = static_cast<uint32_t>(stream), x3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x0, p1 = uint64_t{0xCD9E8D57u} * x2;
    const uint32_t y0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
    const uint32_t y2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x1 = static_cast<uint32_t>(p1);
    x3 = static_cast<uint32_t>(p0);
    x0 = y0;
    x2 = y2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {x0, x1, x2, x3};
}

uint32_t Random::Next32() {
  if (left_ == 0) {
    buffer_ = Philox(key_, stream_, counter_++);
    left_ = 4;
  }
  return buffer_[4 - left_--];
}

float Random::Normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2.0 * std::log1p(-UniformDouble()));
  const double angle = 2.0 * std::numbers::pi * UniformDouble();
  spare_ = static_cast<float>(radius * std::sin(angle));
  has_spare_ = true;
  return static_cast<float>(radius * std::cos(angle));
}

uint64_t Random::Below(uint64_t n) {
  DF_CHECK(n > 0);
  // Rejection: values at or above the largest multiple of n would favor the small remainders.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % n;
  for (;;) {
    const uint64_t value = Next64();
    if (value < limit) return value % n;
  }
}

}  // namespace denseformer

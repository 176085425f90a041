// Masks by Philox (base/random.h), several counters at a time.
#include "kernels/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
int64_t FillWholeVectors(const Dropout&, uint64_t, int64_t, float*) { return 0; }
#else
// Fills as many scales as whole vectors give, from an index that 4 divides; returns their number.
// The words of the state lie in the lower halves of 64-bit lanes, where the multiplication reads
// them; what is left in the upper halves does not matter.
int64_t FillWholeVectors(const Dropout& dropout, uint64_t index, int64_t n, float* scales) {
  const hn::ScalableTag<uint64_t> d;
  const hn::RepartitionToNarrow<decltype(d)> d32;
  const hn::RebindToSigned<decltype(d32)> di32;
  const hn::RebindToFloat<decltype(d32)> df;
  const int64_t counters = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, 0xffffffffu);
  const auto multiply = [&](auto x, uint32_t by)
                            HWY_ATTR { return hn::MulEven(hn::BitCast(d32, x), hn::Set(d32, by)); };
  const auto threshold = hn::Set(df, dropout.probability * 0x1p24f);
  const auto kept = hn::Set(df, 1.0f / (1.0f - dropout.probability));
  const auto store = [&](auto words, float* to) HWY_ATTR {
    const auto bits = hn::BitCast(di32, hn::ShiftRight<8>(hn::BitCast(d32, words)));
    hn::StoreU(hn::IfThenZeroElse(hn::Lt(hn::ConvertTo(df, bits), threshold), kept), df, to);
  };
  int64_t i = 0;
  for (; i + 4 * counters <= n; i += 4 * counters) {
    const auto counter = hn::Iota(d, (index + i) / 4);
    auto x0 = counter, x1 = hn::ShiftRight<32>(counter);
    auto x2 = hn::Set(d, dropout.stream), x3 = hn::ShiftRight<32>(x2);
    uint32_t k0 = static_cast<uint32_t>(dropout.seed), k1 = dropout.seed >> 32;
    for (int round = 0; round < 10; ++round) {
      const auto p0 = multiply(x0, 0xD2511F53u), p1 = multiply(x2, 0xCD9E8D57u);
      x0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(x1, hn::Set(d, uint64_t{k0})));
      x2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(x3, hn::Set(d, uint64_t{k1})));
      x1 = p1;
      x3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const auto words01 = hn::Or(hn::And(x0, low), hn::ShiftLeft<32>(x1));
    const auto words23 = hn::Or(hn::And(x2, low), hn::ShiftLeft<32>(x3));
    HWY_ALIGN uint64_t words[2 * hn::MaxLanes(d)];
    hn::StoreInterleaved2(words01, words23, d, words);
    store(hn::Load(d, words), scales + i);
    store(hn::Load(d, words + counters), scales + i + 2 * counters);
  }
  return i;
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(FillWholeVectors);

}  // namespace

void Dropout::FillScales(uint64_t index, int64_t n, float* scales) const {
  const float kept = 1.0f / (1.0f - probability);
  index += first;
  for (int64_t i = 0; i < n;) {
    if ((index + i) % 4 == 0) {
      i += DF_DYNAMIC_DISPATCH(FillWholeVectors)(*this, index + i, n - i, scales + i);
    }
    // One counter: up to the next index that 4 divides, or to the end.
    const Random4 bits = Philox(seed, stream, (index + i) / 4);
    for (uint64_t j = (index + i) % 4; j < 4 && i < n; ++j, ++i) {
      scales[i] = static_cast<float>(bits[j] >> 8) * 0x1p-24f < probability ? 0.0f : kept;
    }
  }
}

void ApplyDropout(const Dropout& dropout, const Tensor& x) {
  if (!dropout.enabled()) return;
  float* data = x.f32();
  ParallelFor(x.count(), 1 << 12, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kBlock = 256;
    float scales[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      dropout.FillScales(static_cast<uint64_t>(at), count, scales);
      for (int64_t i = 0; i < count; ++i) data[at + i] *= scales[i];
    }
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE

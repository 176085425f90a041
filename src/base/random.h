// Counter-based random numbers (Philox 4x32, 10 rounds; Salmon et al., SC 2011).
//
// The numbers are a pure function of (key, counter): the same whatever the number of threads or
// processes, and a run can resume at any step with no state to restore.
#ifndef DENSEFORMER_BASE_RANDOM_H_
#define DENSEFORMER_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace denseformer {

using Random4 = std::array<uint32_t, 4>;

// Ten rounds of Philox on the counter {lo(counter), hi(counter), lo(stream), hi(stream)}.
Random4 Philox(uint64_t key, uint64_t stream, uint64_t counter);

// A stream of random numbers; `stream` separates uses (weights of a parameter, order of an epoch).
class Random {
 public:
  explicit Random(uint64_t key, uint64_t stream = 0, uint64_t counter = 0)
      : key_(key), stream_(stream), counter_(counter) {}

  uint32_t Next32();
  // The low half is drawn first.
  uint64_t Next64() {
    const uint64_t low = Next32();
    return low | (uint64_t{Next32()} << 32);
  }
  // Uniform in [0, 1), 24 bits.
  float Uniform() { return static_cast<float>(Next32() >> 8) * 0x1p-24f; }
  // Uniform in [0, 1), 53 bits.
  double UniformDouble() { return static_cast<double>(Next64() >> 11) * 0x1p-53; }
  // Standard normal (Box-Muller).
  float Normal();
  // Uniform in [0, n), without bias; n > 0.
  uint64_t Below(uint64_t n);

 private:
  uint64_t key_, stream_, counter_;
  Random4 buffer_{};
  int left_ = 0;
  bool has_spare_ = false;
  float spare_ = 0;
};

// A 64-bit hash of a name, to make the stream of what it names (FNV-1a).
constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_RANDOM_H_

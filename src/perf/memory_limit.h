// Limits of the memory: loops on all threads that move as many bytes as a kernel, with next to no
// arithmetic.
#ifndef DENSEFORMER_PERF_MEMORY_LIMIT_H_
#define DENSEFORMER_PERF_MEMORY_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace denseformer {

// Reads every byte once; the result keeps the compiler from dropping the loop.
uint64_t ReadBytes(std::span<const std::byte> bytes);

// The memory traffic of AdamW without its arithmetic: reads four arrays, writes all but b.
void TouchFour(std::span<float> a, std::span<const float> b, std::span<float> c,
               std::span<float> d);

// What a kernel does with its memory: the bytes of each stream.
struct MemoryTraffic {
  std::vector<int64_t> read, update, write;

  int64_t bytes() const;  // each byte read and each byte written counted once
};

// Memory for the streams, and the loop over them: all streams go by in blocks, as in a kernel that
// works row by row.
class TrafficLoop {
 public:
  explicit TrafficLoop(const MemoryTraffic& traffic);
  void Run();

 private:
  std::vector<std::vector<float>> read_, update_, write_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_MEMORY_LIMIT_H_

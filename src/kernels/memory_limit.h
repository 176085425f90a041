// Limits of the memory, for benchmarks: loops that only read, or read and write, on all threads.
#ifndef DENSEFORMER_KERNELS_MEMORY_LIMIT_H_
#define DENSEFORMER_KERNELS_MEMORY_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace denseformer {

// Reads every byte once; the result keeps the compiler from dropping the loop.
uint64_t ReadBytes(std::span<const std::byte> bytes);

// The memory traffic of AdamW without its arithmetic: reads four arrays, writes all but b.
void TouchFour(std::span<float> a, std::span<const float> b, std::span<float> c,
               std::span<float> d);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_MEMORY_LIMIT_H_

// How much memory this process may still take, and has taken.
#ifndef DENSEFORMER_BASE_MEMORY_H_
#define DENSEFORMER_BASE_MEMORY_H_

#include <cstdint>
#include <string>

namespace denseformer {

// Bytes that the machine, the container that this process may live in, and the limit on its address
// space (ulimit -v) can give without swapping; the largest number where the system does not say.
int64_t AvailableMemory();

// Throws kUnsupported where the limit on the address space leaves less than `bytes`. Libraries that
// do not survive a failed allocation (oneDNN, the starting of threads) come after such a check.
void RequireAddressSpace(const std::string& what, int64_t bytes);

// Throws kUnsupported where `bytes` are more than that: the system would rather end the process
// than refuse. `what` begins the message ("training"), `remedy` says how to need less.
void RequireMemory(const std::string& what, int64_t bytes, const std::string& remedy);

// Bytes that this process has in memory now; 0 where the system does not say.
int64_t ResidentMemory();

// The most bytes that this process has had in memory at a time.
int64_t PeakMemory();

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_MEMORY_H_

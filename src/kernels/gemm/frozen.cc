#include "kernels/gemm/frozen.h"

#include <algorithm>

#include "base/team.h"

namespace denseformer {
namespace {

// Of the next matrix, what a thread asks for when it is done with this one, and what it may have
// fetched into its L2 when it comes to that matrix.
constexpr int64_t kFirstBytes = int64_t{16} << 10;
constexpr int64_t kNextBytes = int64_t{384} << 10;
// With more rows a matrix takes so long that fetching the start of the next one does not matter.
constexpr int64_t kMostFetchingRows = 64;

}  // namespace

void FrozenWeight::PrefetchNext(int64_t rows, int64_t part, int64_t parts) const {
  if (next_ != nullptr && rows <= kMostFetchingRows) next_->Prefetch(part, parts);
}

void FrozenWeight::PrefetchRange(const std::byte* begin, int64_t bytes) {
  const int64_t first = std::min(bytes, kFirstBytes);
  for (int64_t at = 0; at < first; at += 64) __builtin_prefetch(begin + at, 0, /*locality=*/2);
  SetUpcomingRead(begin + first, static_cast<size_t>(std::min(bytes, kNextBytes) - first));
}

}  // namespace denseformer

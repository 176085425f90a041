#include "kernels/gemm/frozen.h"

#include <algorithm>

namespace denseformer {
namespace {

// Of the next matrix, what a thread asks for when it is done with this one, and what it may have
// fetched into its L2 when it comes to that matrix.
constexpr size_t kFirstBytes = size_t{16} << 10;
constexpr size_t kNextBytes = size_t{384} << 10;
// With more rows a matrix takes so long that fetching the start of the next one does not matter.
constexpr int64_t kMostFetchingRows = 64;

}  // namespace

const std::byte* FrozenWeight::NextStart(int64_t rows, const SharedPart& part) const {
  if (next_ == nullptr || rows > kMostFetchingRows) return nullptr;
  return next_->Share(part.part, part.parts).data();
}

void FrozenWeight::PrefetchNext(int64_t rows, const SharedPart& part) const {
  if (next_ == nullptr || rows > kMostFetchingRows) return;
  const std::span<const std::byte> share = next_->Share(part.part, part.parts);
  const size_t first = std::min(share.size(), kFirstBytes);
  for (size_t at = 0; at < first; at += 64) __builtin_prefetch(share.data() + at, 0, 2);
  SetUpcomingRead(share.data() + first, std::min(share.size(), kNextBytes) - first);
}

}  // namespace denseformer

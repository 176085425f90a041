// Which results are written with non-temporal stores: those that would leave the cache
// before they are read. Their lines are not fetched first, and push nothing else out.
#ifndef DENSEFORMER_KERNELS_STREAM_H_
#define DENSEFORMER_KERNELS_STREAM_H_

#include <cstdint>

#include "base/parallel.h"

namespace denseformer {

// Of a result of all threads together.
inline bool StoredPastCache(int64_t bytes) { return bytes > (int64_t{1} << 20) * NumThreads(); }

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_STREAM_H_

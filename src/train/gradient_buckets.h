// The buffer of all parameters in buckets, in the order in which the backward pass finishes their
// gradients: the blocks from the last to the first, then all that is final only at its end (the
// embedding, which is also the head, the last norm, and the weights of the averages).
#ifndef DENSEFORMER_TRAIN_GRADIENT_BUCKETS_H_
#define DENSEFORMER_TRAIN_GRADIENT_BUCKETS_H_

#include <cstdint>
#include <vector>

#include "dist/collectives.h"
#include "model/parameters.h"

namespace denseformer {

struct GradientBucket {
  Range range;       // of the buffer
  int ready_at = 0;  // final once the backward pass of this block is over; 0: of the whole model
};

struct BucketSizes {
  int64_t least = int64_t{1} << 18;  // smaller blocks share a bucket
  int64_t most = int64_t{1} << 22;   // larger ranges are cut
};

// What a rank owns of a bucket: its ShardRange.
Range ShardIn(const Range& bucket, int rank, int ranks);

// Together they are the whole buffer, each element once.
std::vector<GradientBucket> MakeBuckets(const ParameterTable& table, const BucketSizes& sizes = {});

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_GRADIENT_BUCKETS_H_

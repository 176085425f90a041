#include "train/gradient_buckets.h"

#include <algorithm>

namespace denseformer {
namespace {

int ReadyAt(const Parameter& parameter) { return parameter.mixes() ? 0 : parameter.block; }

// Neighbors in the buffer that are final at the same time.
std::vector<GradientBucket> Segments(const ParameterTable& table) {
  std::vector<GradientBucket> segments;
  for (const Parameter& p : table.all()) {
    if (segments.empty() || segments.back().ready_at != ReadyAt(p)) {
      segments.push_back({{p.offset, p.offset}, ReadyAt(p)});
    }
    segments.back().range.end = p.offset + p.count();
  }
  // The padding after a tensor belongs to it.
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].range.end =
        i + 1 < segments.size() ? segments[i + 1].range.begin : table.buffer_size();
  }
  return segments;
}

}  // namespace

Range ShardIn(const Range& bucket, int rank, int ranks) {
  const Range shard = ShardRange(bucket.size(), rank, ranks);
  return {bucket.begin + shard.begin, bucket.begin + shard.end};
}

std::vector<GradientBucket> MakeBuckets(const ParameterTable& table, const BucketSizes& sizes) {
  std::vector<GradientBucket> segments = Segments(table);
  std::stable_sort(segments.begin(), segments.end(),
                   [](const auto& a, const auto& b) { return a.ready_at > b.ready_at; });
  std::vector<GradientBucket> merged;
  for (const GradientBucket& segment : segments) {
    const bool joins = !merged.empty() && segment.ready_at > 0 &&
                       merged.back().range.begin == segment.range.end &&
                       merged.back().range.size() < sizes.least;
    if (joins) {
      merged.back() = {{segment.range.begin, merged.back().range.end}, segment.ready_at};
    } else {
      merged.push_back(segment);
    }
  }
  std::vector<GradientBucket> buckets;
  for (const GradientBucket& whole : merged) {
    const int64_t parts = (whole.range.size() + sizes.most - 1) / sizes.most;
    for (int part = 0; part < parts; ++part) {
      buckets.push_back({ShardIn(whole.range, part, static_cast<int>(parts)), whole.ready_at});
    }
  }
  return buckets;
}

}  // namespace denseformer

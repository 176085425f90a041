#include "dist/watchdog.h"

#include <fmt/format.h>

#include <cstddef>

namespace denseformer {

std::string FindHang(const std::vector<RankStatus>& ranks, double limit) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].silent > limit) {
      return fmt::format("rank {} hangs: it has not reported for {:.0f} s", r, ranks[r].silent);
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].waits_for < 0 || ranks[r].waited <= limit) continue;
    size_t at = r;
    for (size_t hops = 0; hops < ranks.size() && ranks[at].waits_for >= 0; ++hops) {
      at = static_cast<size_t>(ranks[at].waits_for);
    }
    if (ranks[at].waits_for >= 0) {
      return fmt::format("ranks wait for each other: rank {} for rank {} for {:.0f} s", r,
                         ranks[r].waits_for, ranks[r].waited);
    }
    return fmt::format("rank {} hangs: rank {} has waited for {:.0f} s", at, r, ranks[r].waited);
  }
  return "";
}

}  // namespace denseformer

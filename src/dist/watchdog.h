// Which rank does everybody wait for?
#ifndef DENSEFORMER_DIST_WATCHDOG_H_
#define DENSEFORMER_DIST_WATCHDOG_H_

#include <string>
#include <vector>

namespace denseformer {

// What rank 0 knows about a rank.
struct RankStatus {
  int waits_for = -1;  // the rank whose message it waits for; -1: it computes
  double waited = 0;   // seconds, in this wait
  double silent = 0;   // seconds since the rank reported
};

// Where a rank has waited for, or been silent, longer than `limit` seconds: one line that names the
// rank at the end of the chain of waits, the one that does not wait for any other. "" where all is
// well.
std::string FindHang(const std::vector<RankStatus>& ranks, double limit);

}  // namespace denseformer

#endif  // DENSEFORMER_DIST_WATCHDOG_H_

// Progress on stderr: on a terminal one line with a bar, rate and remaining time, redrawn in place;
// elsewhere a plain line now and then; nothing when switched off (--quiet).
#ifndef DENSEFORMER_BASE_PROGRESS_H_
#define DENSEFORMER_BASE_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace denseformer {

// Switches progress off for the whole process (--quiet).
void SetProgressEnabled(bool enabled);

// Removes the bar from the terminal so that a message can be printed; the next Update draws it
// again.
void ClearProgressLine();

class Progress {
 public:
  // `unit` is what is counted ("steps", "MB"; "%" where there is nothing to count); `total` may be
  // 0 where unknown; `start` is where the count begins (a resumed run), so that rate and remaining
  // time speak of this process only.
  Progress(std::string title, std::string unit, double total, double start = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Says how far the work is; `note` stands behind the rate ("loss 3.21"). Cheap to call often: it
  // draws at most ten times a second. Call from one thread.
  void Update(double done, const std::string& note = "");

  // Draws the final state and ends the line. The destructor calls it with the last state, but only
  // clears the line where an exception ends the work: then the error is what there is to read.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;
  void Draw(Clock::time_point now, bool last);

  std::string title_, unit_, note_;
  double total_, start_, done_;
  Clock::time_point begin_, drawn_;
  int exceptions_;  // in flight at construction
  bool finished_ = false;
};

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_PROGRESS_H_

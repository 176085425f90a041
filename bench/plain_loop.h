// The machine's own limit for a kernel that moves memory: a loop with the same traffic and next to
// no arithmetic.
#ifndef DENSEFORMER_BENCH_PLAIN_LOOP_H_
#define DENSEFORMER_BENCH_PLAIN_LOOP_H_

#include <cstdint>
#include <vector>

namespace denseformer {

// What a kernel does with its memory: each stream a block of so many bytes.
struct Traffic {
  std::vector<int64_t> read, update, write;

  int64_t bytes() const;  // each byte read and each byte written counted once
};

// Memory for the streams, and the loop over them on all threads: every stream goes by in blocks, as
// in a kernel that works row by row.
class PlainLoop {
 public:
  explicit PlainLoop(const Traffic& traffic);
  void Run();

 private:
  std::vector<std::vector<float>> read_, update_, write_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_BENCH_PLAIN_LOOP_H_

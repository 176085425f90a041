// Timing on a machine that is shared and noisy: the variants run in turn, A B C A B C ..., in one
// process, and are compared by the ratio of their medians and of their minima.
#ifndef DENSEFORMER_BENCH_ROUNDS_H_
#define DENSEFORMER_BENCH_ROUNDS_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace denseformer {

class Rounds {
 public:
  // `run` does the work of one round; bytes and flops (0: unknown) are what it needs at least.
  void Add(std::string name, std::function<void()> run, double bytes = 0, double flops = 0);

  // One round to warm up, then `rounds` that count.
  void Run(int rounds);

  // A row a variant; ratios are against the first one.
  nlohmann::json ToJson() const;
  void PrintTable() const;

 private:
  struct Variant {
    std::string name;
    std::function<void()> run;
    double bytes, flops;
    std::vector<double> seconds;
  };
  std::vector<Variant> variants_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_BENCH_ROUNDS_H_

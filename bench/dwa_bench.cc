// Depth-weighted averages of a whole pass through the depth: the kernels of kernels/dwa.h against
// the plain loops that one writes first. Prints ratios of interleaved rounds.
#include <CLI/CLI.hpp>
#include <iostream>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/dwa/dwa.h"
#include "rounds.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

struct Options {
  std::string pattern = "1x1";
  int depth = 48;
  int64_t rows = 1024, cols = 768;
  int rounds = 15;
  int group = kForwardLookAhead.group, pull_group = kBackwardLookAhead.group;
  bool json = false, backward = true;
};

// Memory of one model: history in both types, gradients, weights.
class Memory {
 public:
  Memory(const Options& options, const DepthPattern& pattern)
      : pattern_(pattern), shape_({options.rows, options.cols}), storage_(Bytes(options)) {
    Random random(1);
    const int depths = pattern.depth() + 1;
    for (int i = 0; i < depths; ++i) {
      x.push_back(storage_.Allocate(DType::kF32, shape_));
      short_x.push_back(storage_.Allocate(DType::kBF16, shape_));
      if (options.backward) dy.push_back(storage_.Allocate(DType::kF32, shape_));
      for (int64_t e = 0; e < shape_.count(); ++e) {
        const float value = random.Uniform() - 0.5f;
        x[i].f32()[e] = value;
        short_x[i].As<bf16>()[e] = bf16(value);
        if (options.backward) dy[i].f32()[e] = value;
      }
      alpha_.emplace_back();
      for (size_t k = 0; k < pattern.sources(i).size(); ++k) alpha_[i].push_back(random.Normal());
      dalpha_.push_back(alpha_[i]);
    }
    for (int i = 0; i < depths; ++i) {
      alphas.push_back(alpha_[i].empty() ? nullptr : alpha_[i].data());
      dalphas.push_back(dalpha_[i].empty() ? nullptr : dalpha_[i].data());
    }
    y = storage_.Allocate(DType::kF32, shape_);
  }

  std::vector<Tensor> x, short_x, dy;
  std::vector<const float*> alphas;
  std::vector<float*> dalphas;
  Tensor y;

 private:
  static size_t Bytes(const Options& options) {
    const size_t elements = static_cast<size_t>(options.rows * options.cols + 64);
    return elements * (options.depth + 2) * (options.backward ? 10 : 6);
  }

  DepthPattern pattern_;
  Shape shape_;
  Arena storage_;
  std::vector<std::vector<float>> alpha_, dalpha_;
};

// For each source one pass that reads and writes the accumulator.
void NaiveForward(const DepthPattern& pattern, const Memory& m) {
  const int64_t count = m.y.count();
  for (int i = 1; i <= pattern.depth(); ++i) {
    const std::vector<int>& sources = pattern.sources(i);
    for (size_t k = 0; k < sources.size(); ++k) {
      const float* x = m.x[sources[k]].f32();
      const float alpha = m.alphas[i][k];
      float* y = m.y.f32();
      ParallelFor(count, 4096, [&](int64_t begin, int64_t end, int) {
        if (k == 0) {
          for (int64_t e = begin; e < end; ++e) y[e] = alpha * x[e];
        } else {
          for (int64_t e = begin; e < end; ++e) y[e] += alpha * x[e];
        }
      });
    }
  }
}

// For each module and source: dX_j += alpha_ij dY_i, and the dot product.
void NaiveBackward(const DepthPattern& pattern, const Memory& m, std::vector<Tensor>& dx) {
  const int64_t count = m.y.count();
  for (int i = pattern.depth(); i >= 1; --i) {
    const std::vector<int>& sources = pattern.sources(i);
    for (size_t k = 0; k < sources.size(); ++k) {
      const float* x = m.x[sources[k]].f32();
      const float* dy = m.dy[i].f32();
      const float alpha = m.alphas[i][k];
      float* to = dx[sources[k]].f32();
      double sums[256] = {};
      ParallelFor(count, 4096, [&](int64_t begin, int64_t end, int part) {
        float lanes[16] = {};
        int64_t e = begin;
        for (; e + 16 <= end; e += 16) {
          for (int lane = 0; lane < 16; ++lane) {
            to[e + lane] += alpha * dy[e + lane];
            lanes[lane] += x[e + lane] * dy[e + lane];
          }
        }
        for (float lane : lanes) sums[part] += static_cast<double>(lane);
      });
      for (double sum : sums) m.dalphas[i][k] += static_cast<float>(sum);
    }
  }
}

class Passes {
 public:
  Passes(const Options& options, const DepthPattern& pattern, const AveragerOptions& ahead)
      : pattern_(pattern),
        arena_(Size(options, pattern, ahead)),
        averager_(pattern, options.rows, options.cols, arena_, ahead) {}

  void Forward(const Memory& m, const std::vector<Tensor>& history) {
    averager_.StartForward(m.alphas);
    for (int i = 1; i <= pattern_.depth(); ++i) {
      if (pattern_.has_module(i)) averager_.Forward(i, m.x[i], history, m.y);
    }
  }

  void Backward(const Memory& m, const std::vector<Tensor>& history) {
    for (int j = pattern_.depth(); j >= 0; --j) {
      averager_.Backward(j, history, m.dy, m.alphas, m.dalphas, m.y);
    }
  }

 private:
  static size_t Size(const Options& options, const DepthPattern& pattern,
                     const AveragerOptions& ahead) {
    Arena measure;
    DepthAverager(pattern, options.rows, options.cols, measure, ahead);
    return measure.peak();
  }

  const DepthPattern& pattern_;
  Arena arena_;
  DepthAverager averager_;
};

// Reads what every module reads, and nothing else: the machine's limit for a pass at a time.
float ReadLoop(const DepthPattern& pattern, const std::vector<Tensor>& history) {
  float total = 0;
  for (int i = 1; i <= pattern.depth(); ++i) {
    for (int j : pattern.sources(i)) {
      const float* words = static_cast<const float*>(history[j].raw());
      float sums[256] = {};
      ParallelFor(static_cast<int64_t>(history[j].bytes() / 4), 4096,
                  [&](int64_t begin, int64_t end, int part) {
                    float lanes[64] = {};
                    for (int64_t e = begin; e + 64 <= end; e += 64) {
                      for (int lane = 0; lane < 64; ++lane) lanes[lane] += words[e + lane];
                    }
                    for (float lane : lanes) sums[part] += lane;
                  });
      for (float sum : sums) total += sum;
    }
  }
  return total;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Depth-weighted averages of a whole pass against plain loops");
  app.add_option("--dwa", options.pattern, "depth pattern");
  app.add_option("--depth", options.depth, "blocks");
  app.add_option("--rows", options.rows, "tokens");
  app.add_option("--cols", options.cols, "width");
  app.add_option("--rounds", options.rounds, "rounds that count");
  app.add_option("--group", options.group, "look-ahead forward");
  app.add_option("--pull-group", options.pull_group, "look-ahead backward");
  app.add_flag("--json", options.json, "JSON on stdout");
  app.add_flag("!--no-backward", options.backward, "forward only");
  CLI11_PARSE(app, argc, argv);

  const DepthPattern pattern = DepthPattern::Parse(options.pattern, options.depth);
  Memory m(options, pattern);
  AveragerOptions single, ahead;
  single.forward.group = single.backward.group = 1;
  ahead.forward.group = options.group;
  ahead.backward.group = options.pull_group;
  Passes single_pass(options, pattern, single), look_ahead(options, pattern, ahead);
  volatile float sink = 0;

  const double read =
      static_cast<double>(pattern.weight_count()) * static_cast<double>(m.y.count());
  Rounds forward;
  forward.Add("loop of fp32 axpys", [&] { NaiveForward(pattern, m); });
  forward.Add(
      "read loop, fp32", [&] { sink = ReadLoop(pattern, m.x); }, read * 4);
  forward.Add(
      "read loop, bf16", [&] { sink = ReadLoop(pattern, m.short_x); }, read * 2);
  forward.Add(
      "single pass, fp32", [&] { single_pass.Forward(m, m.x); }, read * 4);
  forward.Add(
      "single pass, bf16", [&] { single_pass.Forward(m, m.short_x); }, read * 2);
  forward.Add("look-ahead, fp32", [&] { look_ahead.Forward(m, m.x); });
  forward.Add("look-ahead, bf16", [&] { look_ahead.Forward(m, m.short_x); });
  forward.Run(options.rounds);
  Rounds backward;
  if (options.backward) {
    std::vector<Tensor> dx = m.dy;  // values do not matter for the time
    backward.Add("push: a loop for each pair", [&] { NaiveBackward(pattern, m, dx); });
    backward.Add(
        "pull, fp32 history", [&] { single_pass.Backward(m, m.x); }, read * 4);
    backward.Add(
        "pull, bf16 history", [&] { single_pass.Backward(m, m.short_x); }, read * 4);
    backward.Add("pull with look-ahead, bf16", [&] { look_ahead.Backward(m, m.short_x); });
    backward.Run(options.rounds);
  }
  if (options.json) {
    std::cout << nlohmann::json{{"dwa", options.pattern},       {"depth", options.depth},
                                {"rows", options.rows},         {"cols", options.cols},
                                {"threads", NumThreads()},      {"forward", forward.ToJson()},
                                {"backward", backward.ToJson()}}
                     .dump(2)
              << "\n";
    return 0;
  }
  forward.PrintTable();
  if (options.backward) backward.PrintTable();
  return 0;
}

}  // namespace
}  // namespace denseformer

int main(int argc, char** argv) {
  try {
    return denseformer::Main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "dwa_bench: " << error.what() << "\n";
    return 1;
  }
}

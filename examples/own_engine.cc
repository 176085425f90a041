// Depth-weighted averages in an engine of one's own: a toy residual network (x + tanh(scale * x) a
// block) becomes a DenseFormer, and its DWA weights take gradient steps. Prints the loss, which
// falls.
#include <denseformer/dwa.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

using denseformer::DepthPattern;
using denseformer::DepthWeightedAverage;

namespace {

constexpr int kBlocks = 6;
constexpr int64_t kRows = 4, kWidth = 8, kCount = kRows * kWidth;
constexpr float kRate = 0.02f;

using Matrix = std::vector<float>;

void Block(int i, const Matrix& y, Matrix& x) {
  for (int64_t e = 0; e < kCount; ++e) x[e] = y[e] + std::tanh(0.1f * static_cast<float>(i) * y[e]);
}

// dy += the gradient of Block.
void BlockBackward(int i, const Matrix& y, const Matrix& dx, Matrix& dy) {
  const float scale = 0.1f * static_cast<float>(i);
  for (int64_t e = 0; e < kCount; ++e) {
    const float t = std::tanh(scale * y[e]);
    dy[e] = dx[e] * (1 + scale * (1 - t * t));
  }
}

void Run() {
  DepthWeightedAverage dwa(DepthPattern::Parse("2x1", kBlocks), kRows, kWidth);
  std::vector<Matrix> x(kBlocks + 1, Matrix(kCount)), y = x, dy = x;
  for (int64_t e = 0; e < kCount; ++e) y[0][e] = x[0][e] = 0.05f * static_cast<float>(e % 11 - 5);
  std::vector<const void*> history;
  std::vector<const float*> gradients;
  for (int i = 0; i <= kBlocks; ++i) {
    history.push_back(x[i].data());
    gradients.push_back(dy[i].data());
  }
  for (int step = 0; step < 10; ++step) {
    dwa.Start(kRows);
    for (int i = 1; i <= kBlocks; ++i) {
      Block(i, y[i - 1], x[i]);
      dwa.Forward(i, x[i].data(), history.data(), y[i].data());  // Y_i from X_0..X_i
    }
    double loss = 0;  // mean square distance to 1
    for (int64_t e = 0; e < kCount; ++e) {
      const float difference = y[kBlocks][e] - 1;
      loss += difference * difference / kCount;
      dy[kBlocks][e] = 2 * difference / kCount;
    }
    std::printf("step %d: loss %.4f\n", step, loss);
    Matrix dx(kCount);
    for (int i = kBlocks; i >= 1; --i) {
      dwa.Backward(i, history.data(), gradients.data(), dx.data());  // dX_i from dY_i..dY_d
      BlockBackward(i, y[i - 1], dx, dy[i - 1]);
    }
    dx = dy[0];  // depth 0 has no module: dX_0 begins with dY_0
    dwa.Backward(0, history.data(), gradients.data(), dx.data());
    for (int i = 1; i <= kBlocks; ++i) {
      for (size_t k = 0; k < dwa.weights(i).size(); ++k) {
        dwa.weights(i)[k] -= kRate * dwa.weight_gradients(i)[k];
        dwa.weight_gradients(i)[k] = 0;
      }
    }
  }
}

}  // namespace

int main() {
  try {
    Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own_engine: %s\n", error.what());
    return 1;
  }
}

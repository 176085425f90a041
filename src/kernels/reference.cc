#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cross_entropy.h"
#include "kernels/layernorm.h"

namespace denseformer::reference {

Values Read(const Tensor& tensor) {
  Values values(tensor.count());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.dtype() == DType::kF32 ? tensor.As<const float>()[i]
                                              : static_cast<float>(tensor.As<const bf16>()[i]);
  }
  return values;
}

LayerNorm LayerNormForward(const Values& x, const Values& weight, const Values& bias) {
  const size_t cols = weight.size(), rows = x.size() / cols;
  LayerNorm result{Values(x.size()), Values(rows), Values(rows)};
  for (size_t n = 0; n < rows; ++n) {
    const double* row = &x[n * cols];
    double mean = 0, variance = 0;
    for (size_t i = 0; i < cols; ++i) mean += row[i] / cols;
    for (size_t i = 0; i < cols; ++i) variance += (row[i] - mean) * (row[i] - mean) / cols;
    const double rstd = 1 / std::sqrt(variance + kLayerNormEpsilon);
    for (size_t i = 0; i < cols; ++i) {
      result.out[n * cols + i] =
          (row[i] - mean) * rstd * weight[i] + (bias.empty() ? 0.0 : bias[i]);
    }
    result.mean[n] = mean;
    result.rstd[n] = rstd;
  }
  return result;
}

LayerNormGradient LayerNormBackward(const Values& dout, const Values& x, const Values& weight) {
  const size_t cols = weight.size(), rows = x.size() / cols;
  const LayerNorm forward = LayerNormForward(x, weight, {});
  LayerNormGradient result{Values(x.size()), Values(cols), Values(cols)};
  for (size_t n = 0; n < rows; ++n) {
    const double* dy = &dout[n * cols];
    double sum = 0, dot = 0;
    Values xhat(cols);
    for (size_t i = 0; i < cols; ++i) {
      xhat[i] = (x[n * cols + i] - forward.mean[n]) * forward.rstd[n];
      sum += dy[i] * weight[i] / cols;
      dot += dy[i] * weight[i] * xhat[i] / cols;
      result.dweight[i] += dy[i] * xhat[i];
      result.dbias[i] += dy[i];
    }
    for (size_t i = 0; i < cols; ++i) {
      result.dx[n * cols + i] = forward.rstd[n] * (dy[i] * weight[i] - sum - xhat[i] * dot);
    }
  }
  return result;
}

namespace {

double Phi(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

}  // namespace

Values GeluForward(const Values& x) {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * Phi(x[i]);
  return y;
}

Values GeluBackward(const Values& x, const Values& dy) {
  Values dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double density = std::exp(-x[i] * x[i] / 2) / std::sqrt(2 * std::numbers::pi);
    dx[i] = dy[i] * (Phi(x[i]) + x[i] * density);
  }
  return dx;
}

Values ResidualForward(const Values& x, const Values& delta, double gain, const Dropout& dropout) {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = gain * x[i] + delta[i] * (dropout.enabled() ? dropout.Scale(i) : 1.0);
  }
  return y;
}

Values Rotary(const Values& qkv, int64_t time, int64_t heads, int64_t head_size, double base,
              int direction) {
  Values out = qkv;
  const int64_t width = heads * head_size, rows = static_cast<int64_t>(qkv.size()) / (3 * width);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t h = 0; h < 2 * heads; ++h) {
      for (int64_t m = 0; m < head_size / 2; ++m) {
        const double angle =
            direction * (n % time) * std::pow(base, -2.0 * static_cast<double>(m) / head_size);
        const size_t at = n * 3 * width + h * head_size + 2 * m;
        out[at] = qkv[at] * std::cos(angle) - qkv[at + 1] * std::sin(angle);
        out[at + 1] = qkv[at + 1] * std::cos(angle) + qkv[at] * std::sin(angle);
      }
    }
  }
  return out;
}

CrossEntropy CrossEntropyForwardBackward(const Values& logits, std::span<const int32_t> targets,
                                         double scale) {
  const size_t rows = targets.size(), cols = rows == 0 ? 0 : logits.size() / rows;
  CrossEntropy result{Values(rows), Values(logits.size())};
  for (size_t n = 0; n < rows; ++n) {
    if (targets[n] == kIgnoreTarget) continue;
    const double* row = &logits[n * cols];
    const double most = *std::max_element(row, row + cols);
    double sum = 0;
    for (size_t i = 0; i < cols; ++i) sum += std::exp(row[i] - most);
    result.losses[n] = most + std::log(sum) - row[targets[n]];
    for (size_t i = 0; i < cols; ++i) {
      const double p = std::exp(row[i] - most) / sum;
      result.dlogits[n * cols + i] = (p - (static_cast<int64_t>(i) == targets[n])) * scale;
    }
  }
  return result;
}

void AdamWUpdate(const AdamWStep& step, AdamWState& state) {
  const double t = static_cast<double>(step.step), beta1 = step.beta1, beta2 = step.beta2;
  const double rate = step.rate;
  for (size_t i = 0; i < state.weights.size(); ++i) {
    const double g = state.gradients[i] * step.gradient_scale;
    double& m = state.first_moment[i];
    double& v = state.second_moment[i];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    state.weights[i] = state.weights[i] * (1 - rate * step.decay) -
                       rate * m_hat / (std::sqrt(v_hat) + step.epsilon);
  }
}

}  // namespace denseformer::reference

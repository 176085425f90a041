#include <algorithm>

#include "base/parallel.h"
#include "kernels/convert.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "model/mixer.h"
#include "model/mixer_module.h"
#include "model/weight_backward.h"

namespace denseformer {
namespace {

// <X_j, dY_c> of each source and stream into a row of a.dweights.
void DotsOf(const MixerModule& m, MixerScratch& s, const float* const* dy, float* dweights) {
  RowDots(s.Sources(m.n), m.cols, m.streams, dy, s.dots);
  for (int c = 0; c < m.streams; ++c) {
    for (int k = 0; k < m.n; ++k) dweights[c * m.n + k] = s.dots[k * m.streams + c];
  }
}

// Adds sum_c weights_jc dY_c + self_j X_j (self: null for none) to the gradient of each source.
void PushToSources(const MixerModule& m, MixerScratch& s, const float* const* dy,
                   const float* self) {
  RowPush push;
  push.sources = s.Sources(m.n);
  push.self_weights = self;
  push.inputs = m.streams;
  push.input = dy;
  push.weights = s.weights;
  push.target = s.targets;
  push.add = s.filled;
  PushRow(push, m.cols);
}

// With S = sum_j a_j r_j X_j and r the 1 / rms of S or X_j: dr = -r^3 x / D.
void PrepostTokenBackward(const MixerModule& m, MixerScratch& s, int64_t t, const float* const* dy,
                          float* dweights, float* dpost) {
  NormalizedSums(m, s, t);
  const float D = static_cast<float>(m.cols);
  for (int c = 0; c < m.streams; ++c) {
    const float rstd = RstdOf(s.sums[c], m.cols);
    const float* post = m.mixer.post.f32() + c * m.cols;
    float along = 0;
    for (int64_t e = 0; e < m.cols; ++e) {
      const float normalized = s.sums[c][e] * rstd;
      dpost[c * m.cols + e] += dy[c][e] * normalized;
      s.dsums[c][e] = dy[c][e] * post[e];
      along += s.dsums[c][e] * normalized;
    }
    for (int64_t e = 0; e < m.cols; ++e) {
      s.dsums[c][e] = rstd * (s.dsums[c][e] - s.sums[c][e] * rstd * along / D);
    }
  }
  DotsOf(m, s, s.dsums, dweights);
  for (int k = 0; k < m.n; ++k) {
    float sum = 0;
    for (int c = 0; c < m.streams; ++c) {
      float& dot = dweights[c * m.n + k];  // <X_j, dS>
      sum += s.weights[k * m.streams + c] * dot;
      dot *= s.rstd[k];
    }
    s.self[k] = -sum * s.rstd[k] * s.rstd[k] / D;  // by the change of r with X_j
  }
  PushToSources(m, s, s.dsums, s.self);  // the weights are a r
}

// s_j = query . V_j r_j, p = softmax(s), Y = gate * sum_j p_j V_j (+ X_i).
void AttentionTokenBackward(const MixerModule& m, MixerScratch& s, int64_t t,
                            const float* const* dy, float* dgate, float* dquery) {
  const int C = m.streams;
  const float D = static_cast<float>(m.cols);
  const float* vectors[2 * kMostStreams];
  float* dqueries[kMostStreams];
  for (int c = 0; c < C; ++c) {
    vectors[c] = dy[c];
    vectors[C + c] = m.mixer.query.f32() + c * m.cols;
    dqueries[c] = dquery + c * m.cols;
  }
  RowDots(s.Sources(m.n), m.cols, 2 * C, vectors, s.dots);
  const float* p = m.weights.f32() + t * m.count();
  std::fill(s.self, s.self + m.n, 0.0f);
  for (int c = 0; c < C; ++c) {
    float mean = 0;  // of <V_j, dY> under p
    for (int k = 0; k < m.n; ++k) mean += p[c * m.n + k] * s.dots[k * 2 * C + c];
    if (dgate != nullptr) dgate[c] = mean;
    for (int k = 0; k < m.n; ++k) {
      const float* dots = s.dots + k * 2 * C;
      const float weight = m.gate(c) * p[c * m.n + k];
      const float dscore = weight * (dots[c] - mean) * s.rstd[k];
      s.push[k * 2 * C + c] = weight;
      s.push[k * 2 * C + C + c] = dscore;
      s.weights[k * C + c] = dscore;
      s.self[k] -= dscore * s.rstd[k] * s.rstd[k] / D * dots[C + c];
    }
  }
  RowMix mix;  // dquery += sum_j dscore_j V_j
  mix.sources = s.Sources(m.n);
  mix.weights = s.weights;
  mix.outputs = C;
  mix.output = dqueries;
  mix.add = true;
  MixRow(mix, m.cols);
  RowPush push;
  push.sources = s.Sources(m.n);
  push.self_weights = s.self;
  push.inputs = 2 * C;
  push.input = vectors;
  push.weights = s.push;
  push.target = s.targets;
  push.add = s.filled;
  PushRow(push, m.cols);
}

// to = (add: to +) the sum of the rows `from` of dY for token t.
void SumStreams(const float* const* from, int streams, int64_t cols, float* to) {
  std::copy(from[0], from[0] + cols, to);
  for (int c = 1; c < streams; ++c) {
    for (int64_t e = 0; e < cols; ++e) to[e] += from[c][e];
  }
}

// Tokens of all partitions; partial sums of the partitions in a.mixer_sums.
void TokensBackward(const MixerModule& m, int64_t partitions, Activations& a) {
  const bool summed = m.attends() || m.spec.prepost;
  const bool direct = m.spec.kind() == MixerKind::kAttention || m.spec.prepost;
  const int64_t width = m.streams * m.cols;
  ParallelFor(partitions, /*grain=*/1, [&](int64_t first, int64_t last, int) {
    MixerScratch s(m, a);
    for (int64_t part = first; part < last; ++part) {
      float* sums = a.mixer_sums.f32() + part * width;
      if (summed) std::fill(sums, sums + width, 0.0f);
      for (int64_t t = a.rows() * part / partitions; t < a.rows() * (part + 1) / partitions; ++t) {
        const float* dy[kMostStreams];
        for (int c = 0; c < m.streams; ++c) dy[c] = a.dy(m.depth, c).f32() + t * m.cols;
        float* dx = a.dx.f32() + t * m.cols;
        if (direct) {
          SumStreams(dy, m.streams, m.cols, dx);
        } else {
          std::fill(dx, dx + m.cols, 0.0f);
        }
        s.Load(t);
        s.LoadGradients(t);
        float* dweights = a.dweights.f32() + t * m.count();
        if (m.attends()) {
          float* dgate = a.dgate.empty() ? nullptr : a.dgate.f32() + t * m.streams;
          AttentionTokenBackward(m, s, t, dy, dgate, sums);
        } else if (m.spec.prepost) {
          PrepostTokenBackward(m, s, t, dy, dweights, sums);
        } else {
          LoadMixerWeights(
              m, t, [](int, int) { return 1.0f; }, s.weights);
          DotsOf(m, s, dy, dweights);
          PushToSources(m, s, dy, nullptr);
        }
      }
    }
  });
}

// Gradients of the parameters, and of X_i where the weights depend on it.
void ParametersBackward(const Model& model, const MixerModule& m, int64_t partitions,
                        Gradients gradients, Activations& a) {
  const MixerTensors& dw = model.gradient_tensors().mixers[m.depth];
  const Tensor& summed = m.attends() ? dw.query : dw.post;
  if (!summed.empty()) {
    for (int64_t part = 0; part < partitions; ++part) {
      const float* sums = a.mixer_sums.f32() + part * summed.count();
      for (int64_t e = 0; e < summed.count(); ++e) summed.f32()[e] += sums[e];
    }
  }
  if (!dw.gate.empty()) {
    LinearBackwardBias(Tensor(a.dgate.f32(), {a.rows(), m.streams}), dw.gate);
  }
  if (m.attends()) return;
  const Tensor dweights(a.dweights.f32(), {a.rows(), m.count()});
  LinearBackwardBias(dweights, model.gradient_tensors().alphas[m.depth].Reshape({m.count()}));
  if (m.spec.kind() != MixerKind::kDynamic) return;
  const MixerActivations& mix = a.mix(m.depth);
  const DType compute = mix.norm.dtype();
  const Tensor dz(a.dweights_compute.raw(), compute, {a.rows(), m.count()});
  if (compute != DType::kF32) Convert(dweights, dz);
  const Tensor dhidden(a.dhidden.raw(), compute, {a.rows(), m.count()});
  WeightBackward(dz, mix.gelu, dw.w2, Tensor(), gradients, a);
  LinearBackwardInput(dz, model.Packed(m.mixer.w2), dhidden);
  GeluBackward(mix.hidden, dhidden, dhidden);
  WeightBackward(dhidden, mix.norm, dw.w1, Tensor(), gradients, a);
  LinearBackwardInput(dhidden, model.Packed(m.mixer.w1), a.dnorm);
  RmsNormBackward(a.dnorm, mix.norm, mix.rstd, a.dx);
}

// to += weight * from, [N, D] fp32.
void AddScaled(const Tensor& from, float weight, const Tensor& to) {
  const int64_t cols = to.cols();
  ParallelFor(to.rows(), kMixerGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const void* rows[] = {from.f32() + t * cols};
      float* out[] = {to.f32() + t * cols};
      RowMix mix;
      mix.sources = {1, rows, DType::kF32};
      mix.weights = &weight;
      mix.output = out;
      mix.add = true;
      MixRow(mix, cols);
    }
  });
}

}  // namespace

void MixBackward(const Model& model, int i, Gradients gradients, Activations& a) {
  if (model.pattern().has_module(i)) {
    const MixerModule m(model, i, a);
    const int64_t partitions = LayerNormPartitions(a.rows());
    TokensBackward(m, partitions, a);
    for (int j : m.sources) a.dhistory_filled[j] = 1;
    ParametersBackward(model, m, partitions, gradients, a);
  }
  if (a.dhistory_filled[i] != 0) AddScaled(a.dhistory(i), 1.0f, a.dx);
}

void IncrementBackward(const Model& model, int i, const Tensor& dy, Activations& a) {
  if (model.mixer().form->increments && a.dhistory_filled[i] != 0) {
    AddScaled(a.dhistory(i), -1.0f, dy);
  }
}

}  // namespace denseformer

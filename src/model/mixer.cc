#include "model/mixer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/convert.h"
#include "kernels/dwa/mix_rows.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "model/weight_backward.h"
#include "tensor/scratch.h"

namespace denseformer {
namespace {

constexpr int64_t kGrain = 8;  // rows

// The module after block i.
struct Module {
  Module(const Model& model, int i, Activations& a)
      : spec(model.mixer()),
        sources(model.pattern().sources(i)),
        depth(i),
        n(static_cast<int>(sources.size())),
        streams(a.streams(i)),
        cols(model.config().n_embd),
        weights(Tensor(a.mix(i).weights.raw(), DType::kF32, {a.rows(), count()})),
        b(model.tensors().alphas[i]),
        mixer(model.tensors().mixers[i]) {}

  int64_t count() const { return int64_t{n} * streams; }
  bool attends() const { return spec.form->increments; }
  float gate(int c) const { return mixer.gate.empty() ? 1.0f : mixer.gate.f32()[c]; }

  const MixerSpec& spec;
  const std::vector<int>& sources;
  const int depth, n, streams;
  const int64_t cols;
  const Tensor weights;  // [N, C n]
  const Tensor& b;
  const MixerTensors& mixer;
};

// Rows of one token, and numbers for each of its sources and streams; scratch of a thread.
struct TokenScratch {
  TokenScratch(const Module& m, const Activations& a) : a_(a), m_(m) {
    ScratchPlan measure;
    Place(measure);
    ScratchPlan plan(ThreadScratch(measure.used()));
    Place(plan);
  }
  void Place(ScratchPlan& plan) {
    const size_t n = static_cast<size_t>(m_.n), c = static_cast<size_t>(m_.streams);
    rows = plan.Take<const void*>(n);
    targets = plan.Take<float*>(n);
    filled = plan.Take<uint8_t>(n);
    rstd = plan.Take<float>(n);
    weights = plan.Take<float>(n * c);
    dots = plan.Take<float>(n * c * 2);
    push = plan.Take<float>(n * c * 2);
    self = plan.Take<float>(n);
    for (size_t s = 0; s < c; ++s) sums[s] = plan.Take<float>(static_cast<size_t>(m_.cols));
    for (size_t s = 0; s < c; ++s) dsums[s] = plan.Take<float>(static_cast<size_t>(m_.cols));
  }
  // The rows of token t.
  void Load(int64_t t) {
    for (int k = 0; k < m_.n; ++k) {
      const Tensor& history = a_.history(m_.sources[k]);
      rows[k] = static_cast<const char*>(history.raw()) +
                t * m_.cols * static_cast<int64_t>(SizeOf(history.dtype()));
      if (m_.attends() || m_.spec.prepost) rstd[k] = a_.source_rstd[m_.sources[k]].f32()[t];
    }
  }
  void LoadGradients(int64_t t) {
    for (int k = 0; k < m_.n; ++k) {
      const int j = m_.sources[k];
      targets[k] = a_.dhistory(j).f32() + t * m_.cols;
      filled[k] = a_.dhistory_filled[j];
    }
  }
  RowSources Sources(int count) const { return {count, rows, a_.history(m_.depth).dtype()}; }

  const void** rows;
  float** targets;
  uint8_t* filled;
  float *rstd, *weights, *dots, *push, *self;
  float *sums[kMostStreams], *dsums[kMostStreams];

 private:
  const Activations& a_;
  const Module& m_;
};

// weights [n, C] of token t for MixRow from those of the streams, times scale(k, c).
template <class F>
void LoadWeights(const Module& m, int64_t t, F scale, float* to) {
  const float* from = m.weights.f32() + t * m.count();
  for (int c = 0; c < m.streams; ++c) {
    for (int k = 0; k < m.n; ++k) to[k * m.streams + c] = from[c * m.n + k] * scale(k, c);
  }
}

void Softmax(float* values, int n) {
  const float largest = *std::max_element(values, values + n);
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += values[k] = std::exp(values[k] - largest);
  for (int k = 0; k < n; ++k) values[k] /= sum;
}

// a_sj of every token into m.weights; attention computes its own with the rows at hand.
void WeightsForward(const Model& model, const Module& m, Activations& a) {
  if (m.attends()) return;
  if (m.spec.kind() == MixerKind::kDynamic) {
    const MixerActivations& mix = a.mix(m.depth);
    const Tensor gelu(mix.gelu.raw(), mix.gelu.dtype(), {a.rows(), m.count()});
    const Tensor hidden = mix.hidden.empty() ? Tensor() : mix.hidden;
    RmsNormForward(a.x(m.depth), mix.norm, mix.rstd);
    LinearGeluForward(mix.norm, model.Packed(m.mixer.w1), Tensor(), hidden, gelu);
    LinearForward(gelu, model.Packed(m.mixer.w2), Tensor(), m.weights);
  }
  const bool dynamic = m.spec.kind() == MixerKind::kDynamic;
  ParallelFor(a.rows(), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = m.weights.f32() + t * m.count();
      for (int64_t w = 0; w < m.count(); ++w) row[w] = m.b.f32()[w] + (dynamic ? row[w] : 0.0f);
    }
  });
}

// sums_c = sum over the sources of a_c rms(X_j); returns whether any weight is not 0.
bool NormalizedSums(const Module& m, TokenScratch& s, int64_t t, int64_t cols) {
  LoadWeights(
      m, t, [&](int k, int) { return s.rstd[k]; }, s.weights);
  RowMix mix;
  mix.sources = s.Sources(m.n);
  mix.weights = s.weights;
  mix.outputs = m.streams;
  mix.output = s.sums;
  MixRow(mix, cols);
  return std::any_of(s.weights, s.weights + m.count(), [](float w) { return w != 0; });
}

float RstdOf(const float* row, int64_t cols) {
  const void* rows[] = {row};
  float squares;
  RowSquares({1, rows, DType::kF32}, cols, &squares);
  return 1.0f / std::sqrt(squares / static_cast<float>(cols) + kRmsNormEpsilon);
}

void PrepostRow(const Module& m, TokenScratch& s, int64_t t, const float* x, float* const* y) {
  const bool any = NormalizedSums(m, s, t, m.cols);
  // The residual stream may be where X_i is: it comes last.
  for (int c = m.streams - 1; c >= 0; --c) {
    if (!any) {
      std::memmove(y[c], x, static_cast<size_t>(m.cols) * sizeof(float));
      continue;
    }
    const float rstd = RstdOf(s.sums[c], m.cols);
    const float* post = m.mixer.post.f32() + c * m.cols;
    for (int64_t e = 0; e < m.cols; ++e) y[c][e] = x[e] + post[e] * (s.sums[c][e] * rstd);
  }
}

void MixTokenForward(const Module& m, TokenScratch& s, int64_t t, const float* x, float* const* y) {
  s.Load(t);
  if (m.spec.prepost) return PrepostRow(m, s, t, x, y);
  float newest[kMostStreams] = {};
  RowMix mix;
  mix.outputs = m.streams;
  mix.output = y;
  mix.weights = s.weights;
  mix.newest = x;
  mix.newest_weights = newest;
  if (m.attends()) {
    const float* queries[kMostStreams];
    for (int c = 0; c < m.streams; ++c) queries[c] = m.mixer.query.f32() + c * m.cols;
    RowDots(s.Sources(m.n), m.cols, m.streams, queries, s.dots);
    float* p = m.weights.f32() + t * m.count();
    for (int c = 0; c < m.streams; ++c) {
      for (int k = 0; k < m.n; ++k) p[c * m.n + k] = s.dots[k * m.streams + c] * s.rstd[k];
      Softmax(p + c * m.n, m.n);
      newest[c] = 1;
    }
    LoadWeights(
        m, t, [&](int, int c) { return m.gate(c); }, s.weights);
    if (m.spec.kind() == MixerKind::kAttnRes) mix.newest = nullptr;
    mix.sources = s.Sources(m.n);
  } else {
    // The newest source is taken in fp32.
    LoadWeights(
        m, t, [](int, int) { return 1.0f; }, s.weights);
    for (int c = 0; c < m.streams; ++c) newest[c] = s.weights[(m.n - 1) * m.streams + c];
    mix.sources = s.Sources(m.n - 1);
  }
  MixRow(mix, m.cols);
}

// <X_j, dY_c> of each source and stream into a row of a.dweights.
void DotsOf(const Module& m, TokenScratch& s, const float* const* dy, float* dweights) {
  RowDots(s.Sources(m.n), m.cols, m.streams, dy, s.dots);
  for (int c = 0; c < m.streams; ++c) {
    for (int k = 0; k < m.n; ++k) dweights[c * m.n + k] = s.dots[k * m.streams + c];
  }
}

// Adds sum_c weights_jc dY_c + self_j X_j (self: null for none) to the gradient of each source.
void PushToSources(const Module& m, TokenScratch& s, const float* const* dy, const float* self) {
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
void PrepostTokenBackward(const Module& m, TokenScratch& s, int64_t t, const float* const* dy,
                          float* dweights, float* dpost) {
  NormalizedSums(m, s, t, m.cols);
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
void AttentionTokenBackward(const Module& m, TokenScratch& s, int64_t t, const float* const* dy,
                            float* dgate, float* dquery) {
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
void TokensBackward(const Module& m, int64_t partitions, Activations& a) {
  const bool summed = m.attends() || m.spec.prepost;
  const bool direct = m.spec.kind() == MixerKind::kAttention || m.spec.prepost;
  const int64_t width = m.streams * m.cols;
  ParallelFor(partitions, /*grain=*/1, [&](int64_t first, int64_t last, int) {
    TokenScratch s(m, a);
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
          LoadWeights(
              m, t, [](int, int) { return 1.0f; }, s.weights);
          DotsOf(m, s, dy, dweights);
          PushToSources(m, s, dy, nullptr);
        }
      }
    }
  });
}

// Gradients of the parameters, and of X_i where the weights depend on it.
void ParametersBackward(const Model& model, const Module& m, int64_t partitions,
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
  ParallelFor(to.rows(), kGrain, [&](int64_t begin, int64_t end, int) {
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

const char* StreamName(Stream stream) {
  switch (stream) {
    case Stream::kResidual:
      return "r";
    case Stream::kQuery:
      return "q";
    case Stream::kKey:
      return "k";
    case Stream::kValue:
      return "v";
  }
  DF_CHECK_MSG(false, "stream {}", static_cast<int>(stream));
}

void StoreHistory(const Model& model, int i, Activations& a) {
  const Tensor& history = a.history(i);
  if (history.empty()) return;
  const int64_t cols = history.cols();
  const bool increment = model.mixer().form->increments && i > 0;
  if (!increment) Convert(a.x(i), history);
  if (!increment && a.source_rstd[i].empty()) return;
  ParallelFor(a.rows(), kGrain, [&](int64_t begin, int64_t end, int) {
    float* row = static_cast<float*>(ThreadScratch(static_cast<size_t>(cols) * sizeof(float)));
    for (int64_t t = begin; t < end; ++t) {
      const Tensor kept = history.Rows(t, 1);
      if (increment) {
        const float *x = a.x(i).f32() + t * cols, *y = a.y(i - 1).f32() + t * cols;
        for (int64_t e = 0; e < cols; ++e) row[e] = x[e] - y[e];
        Convert(Tensor(row, {1, cols}), kept);
      }
      const void* rows[] = {kept.raw()};
      float squares;
      RowSquares({1, rows, kept.dtype()}, cols, &squares);
      a.source_rstd[i].f32()[t] =
          1.0f / std::sqrt(squares / static_cast<float>(cols) + kRmsNormEpsilon);
    }
  });
}

void MixForward(const Model& model, int i, Activations& a) {
  const Module m(model, i, a);
  WeightsForward(model, m, a);
  ParallelFor(a.rows(), kGrain, [&](int64_t begin, int64_t end, int) {
    TokenScratch s(m, a);
    for (int64_t t = begin; t < end; ++t) {
      float* y[kMostStreams];
      for (int c = 0; c < m.streams; ++c) y[c] = a.y(i, c).f32() + t * m.cols;
      MixTokenForward(m, s, t, a.x(i).f32() + t * m.cols, y);
    }
  });
}

void MixBackward(const Model& model, int i, Gradients gradients, Activations& a) {
  if (model.pattern().has_module(i)) {
    const Module m(model, i, a);
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

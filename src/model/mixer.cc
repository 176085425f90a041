#include "model/mixer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/convert.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rmsnorm.h"
#include "model/mixer_module.h"

namespace denseformer {

bool NormalizedSums(const MixerModule& m, MixerScratch& s, int64_t t) {
  LoadMixerWeights(
      m, t, [&](int k, int) { return s.rstd[k]; }, s.weights);
  RowMix mix;
  mix.sources = s.Sources(m.n);
  mix.weights = s.weights;
  mix.outputs = m.streams;
  mix.output = s.sums;
  MixRow(mix, m.cols);
  return std::any_of(s.weights, s.weights + m.count(), [](float w) { return w != 0; });
}

float RstdOf(const float* row, int64_t cols) {
  const void* rows[] = {row};
  float squares;
  RowSquares({1, rows, DType::kF32}, cols, &squares);
  return 1.0f / std::sqrt(squares / static_cast<float>(cols) + kRmsNormEpsilon);
}

namespace {

void Softmax(float* values, int n) {
  const float largest = *std::max_element(values, values + n);
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += values[k] = std::exp(values[k] - largest);
  for (int k = 0; k < n; ++k) values[k] /= sum;
}

// a_sj of every token into m.weights; attention computes its own with the rows at hand.
void WeightsForward(const Model& model, const MixerModule& m, Activations& a) {
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
  ParallelFor(a.rows(), kMixerGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = m.weights.f32() + t * m.count();
      for (int64_t w = 0; w < m.count(); ++w) row[w] = m.b.f32()[w] + (dynamic ? row[w] : 0.0f);
    }
  });
}

void PrepostRow(const MixerModule& m, MixerScratch& s, int64_t t, const float* x, float* const* y) {
  const bool any = NormalizedSums(m, s, t);
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

void MixTokenForward(const MixerModule& m, MixerScratch& s, int64_t t, const float* x,
                     float* const* y) {
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
    LoadMixerWeights(
        m, t, [&](int, int c) { return m.gate(c); }, s.weights);
    if (m.spec.kind() == MixerKind::kAttnRes) mix.newest = nullptr;
    mix.sources = s.Sources(m.n);
  } else {
    // The newest source is taken in fp32.
    LoadMixerWeights(
        m, t, [](int, int) { return 1.0f; }, s.weights);
    for (int c = 0; c < m.streams; ++c) newest[c] = s.weights[(m.n - 1) * m.streams + c];
    mix.sources = s.Sources(m.n - 1);
  }
  MixRow(mix, m.cols);
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

bool KeepsIncrement(const Model& model, int i) { return model.mixer().form->increments && i > 0; }

void FinishHistory(const Model& model, int i, Activations& a) {
  const Tensor& history = a.history(i);
  if (history.empty() || a.source_rstd[i].empty()) return;
  const int64_t cols = history.cols();
  const bool increment = KeepsIncrement(model, i);
  ParallelFor(a.rows(), kMixerGrain, [&](int64_t begin, int64_t end, int) {
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
  const MixerModule m(model, i, a);
  WeightsForward(model, m, a);
  ParallelFor(a.rows(), kMixerGrain, [&](int64_t begin, int64_t end, int) {
    MixerScratch s(m, a);
    for (int64_t t = begin; t < end; ++t) {
      float* y[kMostStreams];
      for (int c = 0; c < m.streams; ++c) y[c] = a.y(i, c).f32() + t * m.cols;
      MixTokenForward(m, s, t, a.x(i).f32() + t * m.cols, y);
    }
  });
}

}  // namespace denseformer

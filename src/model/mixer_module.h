// What the forward and backward passes of a mixer (mixer.h) share: the module after a block, and
// the scratch memory of one token.
#ifndef DENSEFORMER_MODEL_MIXER_MODULE_H_
#define DENSEFORMER_MODEL_MIXER_MODULE_H_

#include <vector>

#include "kernels/dwa/mix_rows.h"
#include "model/activations.h"
#include "model/model.h"
#include "tensor/scratch.h"

namespace denseformer {

inline constexpr int64_t kMixerGrain = 8;  // rows

// The module after block i.
struct MixerModule {
  MixerModule(const Model& model, int i, Activations& a)
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
struct MixerScratch {
  MixerScratch(const MixerModule& m, const Activations& a) : a_(a), m_(m) {
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
  const MixerModule& m_;
};

// weights [n, C] of token t for MixRow from those of the streams, times scale(k, c).
template <class F>
void LoadMixerWeights(const MixerModule& m, int64_t t, F scale, float* to) {
  const float* from = m.weights.f32() + t * m.count();
  for (int c = 0; c < m.streams; ++c) {
    for (int k = 0; k < m.n; ++k) to[k * m.streams + c] = from[c * m.n + k] * scale(k, c);
  }
}

// sums_c = sum over the sources of a_c rms(X_j); returns whether any weight is not 0.
bool NormalizedSums(const MixerModule& m, MixerScratch& s, int64_t t);

// 1 / rms of a row.
float RstdOf(const float* row, int64_t cols);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_MIXER_MODULE_H_

// The forward pass, top to bottom:
//   X_0 = embedding; for each block i: X_i = block(Y_{i-1}), Y_i = depth-weighted average of
//   X_0..X_i; loss = cross-entropy(LayerNorm(Y_d) wte^T)
#include "model/forward.h"

#include "base/parallel.h"
#include "kernels/attention/attention.h"
#include "kernels/convert.h"
#include "kernels/embedding.h"
#include "kernels/fused_add_norm.h"
#include "kernels/layernorm.h"
#include "kernels/rotary.h"
#include "model/head.h"
#include "model/mixer.h"
#include "model/qkv.h"

namespace denseformer {
namespace {

// X_0. A frozen model has the rows of the embedding as the head reads them.
void EmbedTokens(const Model& model, std::span<const int32_t> tokens, const Tensor& x) {
  if (!model.frozen()) return EmbeddingForward(tokens, model.tensors().wte, x);
  ParallelFor(
      static_cast<int64_t>(tokens.size()), /*grain=*/8, [&](int64_t begin, int64_t end, int) {
        for (int64_t n = begin; n < end; ++n) {
          model.packed_head().ReadRow(tokens[static_cast<size_t>(n)], x.f32() + n * x.cols());
        }
      });
}

// Block i up to the input of its last GEMM: all that its backward pass reads. Its first LayerNorm
// was computed with Y_{i-1}.
void BlockInnerForward(const Model& model, int i, const DropoutOptions& dropout, Attend attend,
                       Activations& a) {
  const BlockTensors& w = model.tensors().blocks[i - 1];
  const PackedBlock& packed = model.packed(i);
  BlockActivations& b = a.block(i);

  attend(i, b);
  LinearForward(b.attention, packed.proj, w.proj_bias, a.delta);

  FusedAddNorm middle;  // x_mid = gain * Y_{i-1} + delta, ln_2 = LayerNorm(x_mid)
  middle.stream = a.y(i - 1);
  middle.delta = a.delta;
  middle.gain = w.gain_attn;
  middle.dropout = PlaceDropout(dropout, i, DropoutPlace::kProjection);
  middle.x = b.x_mid;
  middle.norm = {w.ln_2_weight, w.ln_2_bias, b.ln_2, b.ln_2_mean, b.ln_2_rstd};
  FusedAddNormForward(middle);

  LinearGeluForward(b.ln_2, packed.fc, w.fc_bias, b.fc, b.gelu);
}

// Block i up to what its MLP adds to the residual stream (a.delta).
void BlockForward(const Model& model, int i, const DropoutOptions& dropout, Attend attend,
                  Activations& a) {
  BlockInnerForward(model, i, dropout, attend, a);
  LinearForward(a.block(i).gelu, model.packed(i).mlp_proj,
                model.tensors().blocks[i - 1].mlp_proj_bias, a.delta);
}

// Attention over whole sequences. The arguments must outlive the result.
auto AttendSequences(const Model& model, const DropoutOptions& dropout, Activations& a) {
  return [&model, &dropout, &a](int i, BlockActivations& b) {
    const int heads = model.config().n_head;
    if (model.packed(i).qkv_parts.size() == 1) {
      LinearRotaryForward(b.ln_1, model.packed(i).qkv(), model.tensors().blocks[i - 1].qkv_bias,
                          a.rotary, heads, b.qkv);
    } else {
      QkvForward(model, i, a);
      RotaryForward(a.rotary, heads, b.qkv);
    }
    AttentionForward(b.qkv, heads, PlaceDropout(dropout, i, DropoutPlace::kAttention), b.attention,
                     b.lse);
  };
}

// The LayerNorm that reads Y_i; none where the next stage computes it.
FusedNorm NextNorm(const Model& model, int i, Activations& a) {
  const ModelTensors& w = model.tensors();
  if (!model.stage().last() && i == model.stage().blocks.last) return {};
  if (i == model.config().n_layer) {
    return {w.ln_f_weight, w.ln_f_bias, a.ln_f, a.ln_f_mean, a.ln_f_rstd};
  }
  BlockActivations& next = a.block(i + 1);
  return {w.blocks[i].ln_1_weight, w.blocks[i].ln_1_bias, next.ln_1, next.ln_1_mean,
          next.ln_1_rstd};
}

// The LayerNorms of block i, from the streams of depth i - 1.
void BlockNormsForward(const Model& model, int i, Activations& a) {
  for (const StreamNorm& norm : BlockNorms(model.tensors(), i, a)) {
    LayerNormForward(a.y(i - 1, norm.stream), norm.weight, norm.bias, norm.out, norm.mean,
                     norm.rstd);
  }
}

// X_i = gain * x_mid + delta; at depth 0 X_0 is there already.
FusedAddNorm BlockEnd(const Model& model, int i, const DropoutOptions& dropout, Activations& a) {
  FusedAddNorm end;
  if (i > 0) {
    end.stream = a.block(i).x_mid;
    end.delta = a.delta;
    end.gain = model.tensors().blocks[i - 1].gain_mlp;
    end.dropout = PlaceDropout(dropout, i, DropoutPlace::kMlp);
  }
  end.x = a.x(i);
  return end;
}

// DepthForward with a mixer that is not plain: X_i, its place in the history, the streams of the
// module, and the LayerNorms that read them. Without a module Y_i is X_i, and its LayerNorm is part
// of the first pass.
void MixedDepthForward(const Model& model, int i, const DropoutOptions& dropout, Activations& a,
                       const DepthObserver& observer) {
  const bool module = model.pattern().has_module(i);
  FusedAddNorm end = BlockEnd(model, i, dropout, a);
  if (!KeepsIncrement(model, i)) end.kept = a.history(i);
  if (!module) end.norm = NextNorm(model, i, a);
  FusedAddNormForward(end);
  FinishHistory(model, i, a);
  Storage seen;  // for the observer only: Y_i may take the place of X_i
  if (observer) {
    seen = Storage(a.x(i).bytes());
    Convert(a.x(i), Tensor(static_cast<float*>(seen.data()), a.x(i).shape()));
  }
  if (module) {
    MixForward(model, i, a);
  } else if (a.y(i).raw() != a.x(i).raw()) {
    Convert(a.x(i), a.y(i));
  }
  if (observer) observer(i, Tensor(static_cast<float*>(seen.data()), a.x(i).shape()), a.y(i));
  if (!module) return;
  if (i < model.config().n_layer) return BlockNormsForward(model, i + 1, a);
  const FusedNorm norm = NextNorm(model, i, a);
  LayerNormForward(a.y(i), norm.weight, norm.bias, norm.out, norm.mean, norm.rstd);
}

// X_i, kept for later averages; Y_i; the LayerNorm that reads it.
void DepthForward(const Model& model, int i, const DropoutOptions& dropout, Activations& a,
                  const DepthObserver& observer) {
  if (!model.mixer().plain()) return MixedDepthForward(model, i, dropout, a, observer);
  FusedAddNorm end = BlockEnd(model, i, dropout, a);
  if (!a.history(i).empty() && a.history(i).raw() != a.x(i).raw()) end.kept = a.history(i);
  Storage seen;  // for the observer only: Y_i may take the place of X_i
  if (observer) {
    FusedAddNormForward(end);
    seen = Storage(end.x.bytes());
    Convert(end.x, Tensor(static_cast<float*>(seen.data()), end.x.shape()));
    end.delta = end.kept = Tensor();
  }
  if (model.pattern().has_module(i)) {
    end.averager = &a.averager();
    end.depth = i;
    end.history = a.history();
    end.y = a.y(i);
  }
  end.norm = NextNorm(model, i, a);
  FusedAddNormForward(end);
  if (observer) observer(i, Tensor(static_cast<float*>(seen.data()), end.x.shape()), a.y(i));
}

}  // namespace

double ForwardLoss(const Model& model, const Batch& batch, Activations& a, std::span<float> losses,
                   std::span<uint8_t> correct, const DepthObserver& observer) {
  if (batch.targets.empty()) Throw(ErrorCode::kInvalid, "batch: targets are needed for a loss");
  ForwardSequences(model, batch, DropoutOptions(), a, observer);
  const std::span<float> out = losses.empty() ? std::span<float>(a.losses).first(a.rows()) : losses;
  HeadForward(model, a, batch.targets, out, correct);
  return MeanLoss(out, CountTargets(batch.targets));
}

void ForwardLogits(const Model& model, const Batch& batch, Activations& a, const Tensor& logits,
                   const DepthObserver& observer) {
  ForwardSequences(model, batch, DropoutOptions(), a, observer);
  LinearForward(a.ln_f, model.packed_head(), Tensor(), logits);
}

void ForwardSequences(const Model& model, const Batch& batch, const DropoutOptions& dropout,
                      Activations& a, const DepthObserver& observer) {
  CheckBatch(model, batch);
  a.SetShape(batch.sequences, batch.length);
  ForwardRows(model, batch.tokens, dropout, AttendSequences(model, dropout, a), a, observer);
}

void ForwardRows(const Model& model, std::span<const int32_t> tokens, const DropoutOptions& dropout,
                 Attend attend, Activations& a, const DepthObserver& observer) {
  InputForward(model, tokens, dropout, a, observer);
  BlocksForward(model, {1, model.config().n_layer}, dropout, attend, a, observer);
}

void InputForward(const Model& model, std::span<const int32_t> tokens,
                  const DropoutOptions& dropout, Activations& a, const DepthObserver& observer) {
  a.averager().StartForward(a.alphas);
  EmbedTokens(model, tokens, a.x(0));
  ApplyDropout(PlaceDropout(dropout, 0, DropoutPlace::kEmbedding), a.x(0));
  DepthForward(model, 0, dropout, a, observer);
}

void StreamForward(const Model& model, Activations& a) {
  a.averager().StartForward(a.alphas);
  const int block = model.stage().blocks.first;
  const Tensor &y = a.y(block - 1), &history = a.history(block - 1);
  const bool is_stream = !model.pattern().has_module(block - 1);
  if (is_stream && !history.empty() && history.raw() != y.raw()) Convert(y, history);
  BlockNormsForward(model, block, a);
}

void BlocksForward(const Model& model, BlockRange range, const DropoutOptions& dropout,
                   Attend attend, Activations& a, const DepthObserver& observer) {
  for (int i = range.first; i <= range.last; ++i) {
    BlockForward(model, i, dropout, attend, a);
    DepthForward(model, i, dropout, a, observer);
  }
}

void BlocksForward(const Model& model, BlockRange range, const DropoutOptions& dropout,
                   Activations& a) {
  BlocksForward(model, range, dropout, AttendSequences(model, dropout, a), a, {});
}

void RecomputeBlock(const Model& model, int i, const DropoutOptions& dropout, Activations& a) {
  BlockNormsForward(model, i, a);
  BlockInnerForward(model, i, dropout, AttendSequences(model, dropout, a), a);
}

}  // namespace denseformer

// The backward pass: the forward pass (forward.cc) in reverse, each call the partner of one there.
// The gradient of a is da; activations.dx carries the gradient of the stream from block to block.
#include "model/backward.h"

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/embedding.h"
#include "kernels/fused_add_norm_backward.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/residual.h"
#include "kernels/rotary.h"
#include "model/head.h"
#include "model/mixer.h"
#include "model/qkv.h"
#include "model/weight_backward.h"

namespace denseformer {
namespace {

// Gradients of matrices are stored by the GEMMs that compute them; the others are summed from 0.
void ClearVectorGradients(const Model& model) {
  const std::span<float> gradients = model.gradients();
  for (const Parameter& p : model.table().all()) {
    if (!p.matrix()) std::fill_n(gradients.begin() + p.offset, p.count(), 0.0f);
  }
}

// dX_i in a.dx -> dY_{i-1}.
void BlockBackward(const Model& model, int i, const DropoutOptions& dropout, Gradients gradients,
                   Activations& a) {
  const BlockTensors& w = model.tensors().blocks[i - 1];
  const BlockTensors& dw = model.gradient_tensors().blocks[i - 1];
  const PackedBlock& packed = model.packed(i);
  const int heads = model.config().n_head;
  BlockActivations& b = a.block(i);
  const auto weight_backward = [gradients, &a](const Tensor& dy, const Tensor& x,
                                               const Tensor& dweight, const Tensor& dbias) {
    WeightBackward(dy, x, dweight, dbias, gradients, a);
  };

  ResidualBackward(a.dx, b.x_mid, w.gain_mlp, PlaceDropout(dropout, i, DropoutPlace::kMlp),
                   {a.dx, a.delta, dw.gain_mlp, a.scratch});
  weight_backward(a.delta, b.gelu, dw.mlp_proj_weight, dw.mlp_proj_bias);
  LinearBackwardInput(a.delta, packed.mlp_proj, a.dfc);
  GeluBackward(b.fc, a.dfc, a.dfc);
  weight_backward(a.dfc, b.ln_2, dw.fc_weight, dw.fc_bias);
  LinearBackwardInput(a.dfc, packed.fc, a.dnorm);
  FusedAddNormGradients middle;  // ln_2 = LayerNorm(x_mid), x_mid = gain * Y_{i-1} + delta
  middle.dout = a.dnorm;
  middle.y = b.x_mid;
  middle.weight = w.ln_2_weight;
  middle.mean = b.ln_2_mean;
  middle.rstd = b.ln_2_rstd;
  middle.dresidual = a.dx;
  middle.dweight = dw.ln_2_weight;
  middle.dbias = dw.ln_2_bias;
  middle.x = a.y(i - 1);
  middle.gain = w.gain_attn;
  middle.dropout = PlaceDropout(dropout, i, DropoutPlace::kProjection);
  middle.dx = a.dx;
  middle.ddelta = a.delta;
  middle.dgain = dw.gain_attn;
  middle.scratch = a.scratch;
  FusedAddNormBackward(middle);

  weight_backward(a.delta, b.attention, dw.proj_weight, dw.proj_bias);
  LinearBackwardInput(a.delta, packed.proj, a.dnorm);
  AttentionBackward(b.qkv, b.attention, b.lse, a.dnorm.Reshape(b.attention.shape()), heads,
                    PlaceDropout(dropout, i, DropoutPlace::kAttention), a.dqkv);
  RotaryBackward(a.rotary, heads, a.dqkv);
  QkvBackward(model, i, gradients, DyPlace(model, i - 1, a), a);
  IncrementBackward(model, i, DyPlace(model, i - 1, a), a);
}

// dY_i -> dX_i and the gradients of the weights that read X_i.
void DepthBackward(const Model& model, int i, Gradients gradients, Activations& a) {
  if (!model.mixer().plain()) return MixBackward(model, i, gradients, a);
  a.averager().Backward(i, a.history(), a.dy_of(i), a.alphas, a.dalphas, a.dx);
}

}  // namespace

const Tensor& DyPlace(const Model& model, int i, Activations& a) {
  return model.pattern().has_module(i) ? a.dy()[i] : a.dx;
}

double ForwardBackward(const Model& model, const Batch& batch, const DropoutOptions& dropout,
                       float scale, Gradients gradients, Activations& a,
                       const BlockDone& block_done) {
  DF_CHECK(a.training());
  if (batch.targets.empty()) Throw(ErrorCode::kInvalid, "batch: targets are needed for a loss");
  ForwardSequences(model, batch, dropout, a, {});
  StartBackward(model, gradients, a);
  const double loss = HeadLossBackward(model, batch, scale, gradients, a);
  HeadNormBackward(model, a);
  BlocksBackward(model, {1, model.config().n_layer}, dropout, gradients, a, block_done);
  InputBackward(model, batch.tokens, dropout, gradients, a);
  return loss;
}

void StartBackward(const Model& model, Gradients gradients, Activations& a) {
  if (gradients == Gradients::kReplace) ClearVectorGradients(model);
  a.matrix_squares = 0;
  std::fill(a.dhistory_filled.begin(), a.dhistory_filled.end(), uint8_t{0});
}

double HeadLossBackward(const Model& model, const Batch& batch, float scale, Gradients gradients,
                        Activations& a) {
  const int64_t targets = batch.pass_targets > 0 ? batch.pass_targets : CountTargets(batch.targets);
  const std::span<float> losses = std::span<float>(a.losses).first(a.rows());
  HeadForwardBackward(model, a, batch.targets,
                      targets > 0 ? scale / static_cast<float>(targets) : 0.0f, gradients, losses);
  return MeanLoss(losses, targets);
}

void HeadNormBackward(const Model& model, Activations& a) {
  const int depth = model.config().n_layer;
  const ModelTensors& dw = model.gradient_tensors();
  LayerNormBackward(a.dnorm, a.y(depth), model.tensors().ln_f_weight, a.ln_f_mean, a.ln_f_rstd,
                    {Tensor(), DyPlace(model, depth, a), dw.ln_f_weight, dw.ln_f_bias, a.scratch});
}

void BlocksBackward(const Model& model, BlockRange range, const DropoutOptions& dropout,
                    Gradients gradients, Activations& a, const BlockDone& block_done) {
  for (int i = range.last; i >= range.first; --i) {
    DepthBackward(model, i, gradients, a);
    // The forward pass ended with block `last`, so its activations are still there.
    if (a.recompute() && i < range.last) RecomputeBlock(model, i, dropout, a);
    BlockBackward(model, i, dropout, gradients, a);
    if (block_done) block_done(i);
  }
}

void InputBackward(const Model& model, std::span<const int32_t> tokens,
                   const DropoutOptions& dropout, Gradients gradients, Activations& a) {
  DepthBackward(model, 0, gradients, a);
  ApplyDropout(PlaceDropout(dropout, 0, DropoutPlace::kEmbedding), a.dx);
  EmbeddingBackward(tokens, a.dx, model.gradient_tensors().wte);
}

}  // namespace denseformer

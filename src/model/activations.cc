#include "model/activations.h"

#include <algorithm>

#include "kernels/fused_add_norm_backward.h"
#include "kernels/layernorm.h"
#include "kernels/residual.h"
#include "kernels/rotary.h"

namespace denseformer {
namespace {

// Logits exist for one chunk of rows at a time: enough rows that the GEMM with the embedding
// runs at full speed, and no more than this many bytes.
constexpr int64_t kLogitsBytes = int64_t{128} << 20;
constexpr int64_t kMostLogitsRows = 2048;

int64_t LogitsRows(int64_t vocab_size, int64_t rows) {
  const int64_t fitting =
      kLogitsBytes / (vocab_size * static_cast<int64_t>(sizeof(float))) / 64 * 64;
  return std::min(rows, std::clamp<int64_t>(fitting, 64, kMostLogitsRows));
}

}  // namespace

Activations::Activations(const Model& model, int64_t max_sequences, int64_t max_length,
                         ModelUse use, bool recompute)
    : Activations(model.config(), model.compute(), max_sequences, max_length, use, recompute,
                  model.stage(),
                  std::make_unique<Arena>(Bytes(model.config(), model.compute(), max_sequences,
                                                max_length, use, recompute, &model.stage()))) {
  DF_CHECK(use == ModelUse::kInference || model.trainable());
  FillRotaryTable(kRotaryBase, rotary);
  const ModelTensors& tensors = model.tensors();
  for (int i = 0; i <= config_.n_layer; ++i) {
    if (!pattern_.has_module(i)) continue;
    if (!mixer_.plain()) continue;
    alphas[i] = tensors.alphas[i].f32();
    if (training()) dalphas[i] = model.gradient_tensors().alphas[i].f32();
  }
}

Activations::Activations(const ModelConfig& config, DType compute, int64_t max_sequences,
                         int64_t max_length, ModelUse use, bool recompute, const Stage& stage,
                         std::unique_ptr<Arena> arena)
    : source_rstd(config.n_layer + 1),
      dhistory_filled(config.n_layer + 1),
      alphas(config.n_layer + 1),
      dalphas(config.n_layer + 1),
      config_(config),
      pattern_(DepthPattern::Parse(config.dwa, config.n_layer)),
      mixer_(ParseMixer(config)),
      stage_(stage),
      compute_(compute),
      use_(use),
      recompute_(recompute),
      max_rows_(max_sequences * max_length),
      max_length_(max_length),
      sequences_(max_sequences),
      length_(max_length),
      arena_(std::move(arena)),
      blocks_(use == ModelUse::kTraining && !recompute
                  ? static_cast<size_t>(stage.blocks.last - stage.blocks.first + 1)
                  : 1),
      y_(config.n_layer + 1),
      x_(config.n_layer + 1),
      history_(config.n_layer + 1),
      dy_(config.n_layer + 1),
      y_streams_(config.n_layer + 1),
      mixers_(use == ModelUse::kTraining ? config.n_layer + 1 : 1),
      dhistory_(config.n_layer + 1),
      sums_(config.n_layer + 1),
      dsources_(config.n_layer + 1),
      dy_of_(stage.whole() ? 0 : config.n_layer + 1) {
  DF_CHECK(training() || !recompute_);
  DF_CHECK(stage_.whole() || (training() && mixer_.plain()));
  if (max_sequences < 1 || max_length < 1 || max_length > config.seq_len) {
    Throw(ErrorCode::kUsage,
          "batch of {} sequences of {} tokens: expected at least one sequence of 1 to {} tokens",
          max_sequences, max_length, config.seq_len);
  }
  losses.resize(arena_->measuring() ? 0 : max_rows_);
  // Mixers that are not plain do their own sums.
  averager_.emplace(mixer_.plain() ? pattern_ : DepthPattern(config.n_layer), max_rows_,
                    config_.n_embd, *arena_, stage_.whole() ? AveragerOptions() : kNoLookAhead);
  rotary = arena_->Allocate(DType::kF32, {max_length_, config_.head_size()});
  scratch = arena_->Allocate(DType::kF32,
                             {std::max(FusedAddNormScratch(config_.n_embd), kResidualScratch)});
  if (training() && !mixer_.plain()) {
    mixer_sums = arena_->Allocate(
        DType::kF32, {kMostLayerNormPartitions, kMostStreams * int64_t{config_.n_embd}});
  }
  fixed_ = arena_->Mark();
  LayOut();
}

size_t Activations::Bytes(const ModelConfig& config, DType compute, int64_t max_sequences,
                          int64_t max_length, ModelUse use, bool recompute, const Stage* stage) {
  const Activations measured(config, compute, max_sequences, max_length, use, recompute,
                             stage != nullptr ? *stage : WholeStage(config.n_layer),
                             std::make_unique<Arena>());
  return measured.arena_->used();
}

void Activations::SetShape(int64_t sequences, int64_t length) {
  if (sequences < 1 || length < 1 || length > max_length_ || sequences * length > max_rows_) {
    Throw(ErrorCode::kInvalid,
          "batch of {} sequences of {} tokens: memory was planned for up to {} tokens in sequences "
          "of 1 to {}",
          sequences, length, max_rows_, max_length_);
  }
  if (sequences == sequences_ && length == length_) return;
  sequences_ = sequences;
  length_ = length;
  arena_->Release(fixed_);
  LayOut();
}

Tensor Activations::Rows(DType dtype, int64_t width) {
  return arena_->Allocate(dtype, {rows(), width});
}

void Activations::LayOut() {
  const int64_t D = config_.n_embd;
  for (BlockActivations& block : blocks_) LayOutBlock(block);
  if (mixer_.plain()) {
    LayOutDepth();
    if (!stage_.whole()) LayOutCuts();
  } else {
    LayOutMixedDepth();
    LayOutMixers();
  }
  delta = Rows(compute_, D);
  if (stage_.last()) LayOutHead();
  if (!training()) return;
  dx = Rows(DType::kF32, D);
  dfc = Rows(compute_, 4 * D);
  dqkv = Tensor(dfc.raw(), compute_, {sequences_, length_, 3 * D});
  dnorm = Rows(compute_, D);
}

void Activations::LayOutHead() {
  ln_f = Rows(compute_, config_.n_embd);
  ln_f_mean = arena_->Allocate(DType::kF32, {rows()});
  ln_f_rstd = arena_->Allocate(DType::kF32, {rows()});
  const int64_t chunk = LogitsRows(config_.vocab_size, rows());
  logits = arena_->Allocate(DType::kF32, {chunk, config_.vocab_size});
  if (!training()) return;
  dlogits =
      compute_ == DType::kF32 ? logits : arena_->Allocate(compute_, {chunk, config_.vocab_size});
}

void Activations::LayOutBlock(BlockActivations& block) {
  const int64_t D = config_.n_embd;
  block.ln_1_mean = arena_->Allocate(DType::kF32, {rows()});
  block.ln_1_rstd = arena_->Allocate(DType::kF32, {rows()});
  block.ln_1 = Rows(compute_, D);
  block.qkv = arena_->Allocate(compute_, {sequences_, length_, 3 * D});
  block.lse = arena_->Allocate(DType::kF32, {sequences_, config_.n_head, length_});
  block.attention = arena_->Allocate(compute_, {sequences_, length_, D});
  if (training()) block.x_mid = Rows(DType::kF32, D);
  block.ln_2_mean = arena_->Allocate(DType::kF32, {rows()});
  block.ln_2_rstd = arena_->Allocate(DType::kF32, {rows()});
  block.ln_2 = Rows(compute_, D);
  if (training()) block.fc = Rows(compute_, 4 * D);
  block.gelu = Rows(compute_, 4 * D);
  const auto norm = [&](Tensor& out, Tensor& mean, Tensor& rstd) {
    out = Rows(compute_, D);
    mean = arena_->Allocate(DType::kF32, {rows()});
    rstd = arena_->Allocate(DType::kF32, {rows()});
  };
  if (mixer_.streams.size() > 2) norm(block.ln_k, block.ln_k_mean, block.ln_k_rstd);
  if (mixer_.streams.size() > 1) norm(block.ln_v, block.ln_v_mean, block.ln_v_rstd);
}

// X_i and Y_i^r take turns in one buffer per depth; the history has buffers of its own, because it
// may hold increments, and each further stream has one.
void Activations::LayOutMixedDepth() {
  const int64_t D = config_.n_embd;
  const Tensor shared = training() ? Tensor() : Rows(DType::kF32, D);
  // An increment is taken from Y_{i-1} when X_i is there.
  const Tensor stream = !training() && mixer_.form->increments ? Rows(DType::kF32, D) : shared;
  std::array<Tensor, kMostStreams - 1> shared_streams;
  for (size_t c = 1; c < mixer_.streams.size(); ++c) {
    if (!training()) shared_streams[c - 1] = Rows(DType::kF32, D);
  }
  if (!training()) blocks_[0].x_mid = stream;
  for (int i = 0; i <= config_.n_layer; ++i) {
    y_[i] = training() ? Rows(DType::kF32, D) : shared;
    x_[i] = training() ? y_[i] : stream;
    const bool module = pattern_.has_module(i), read = !pattern_.readers(i).empty();
    history_[i] = read ? Rows(compute_, D) : Tensor();
    dy_[i] = module && training() ? y_[i] : Tensor();
    for (int c = 1; c < streams(i); ++c) {
      y_streams_[i][c - 1] = training() ? Rows(DType::kF32, D) : shared_streams[c - 1];
    }
    if (read && (mixer_.form->increments || mixer_.prepost)) {
      source_rstd[i] = arena_->Allocate(DType::kF32, {rows()});
    }
    dhistory_[i] = read && training() ? Rows(DType::kF32, D) : Tensor();
  }
}

void Activations::LayOutMixers() {
  const int64_t D = config_.n_embd;
  int64_t most = 0;  // weights of a module
  for (int i = 0; i <= config_.n_layer; ++i) {
    most = std::max(most, streams(i) * static_cast<int64_t>(pattern_.sources(i).size()));
  }
  for (size_t at = 0; at < mixers_.size(); ++at) {
    const int i = static_cast<int>(at);
    const int64_t weights =
        mixers_.size() == 1 ? most : streams(i) * static_cast<int64_t>(pattern_.sources(i).size());
    if (weights == 0) continue;
    MixerActivations& m = mixers_[at];
    if (mixer_.kind() == MixerKind::kDynamic) {
      m.norm = Rows(compute_, D);
      m.rstd = arena_->Allocate(DType::kF32, {rows()});
      if (training()) m.hidden = Rows(compute_, weights);
      m.gelu = Rows(compute_, weights);
    }
    m.weights = Rows(DType::kF32, weights);
  }
  if (mixer_.streams.size() > 1) qkv_part = Rows(compute_, 2 * D);
  if (!training()) return;
  dweights = Rows(DType::kF32, most);
  dweights_compute = compute_ == DType::kF32 ? dweights : Rows(compute_, most);
  if (mixer_.kind() == MixerKind::kDynamic) dhidden = Rows(compute_, most);
  if (mixer_.kind() == MixerKind::kAttention) dgate = Rows(DType::kF32, kMostStreams);
}

void Activations::LayOutDepth() {
  const int64_t D = config_.n_embd;
  // Without a backward pass Y_i dies when the next x_mid is made, and that when X_{i+1} is: one
  // place serves them all, and its lines are in the cache when they are written.
  const Tensor shared = training() ? Tensor() : Rows(DType::kF32, D);
  if (!training()) blocks_[0].x_mid = shared;
  for (int i = 0; i <= config_.n_layer; ++i) {
    if (!stage_.Makes(i)) continue;
    const std::vector<DepthPattern::Reader>& readers = pattern_.readers(i);
    // The module at depth i itself reads X_i as it is made; only the backward pass reads it again.
    const bool stored = !readers.empty() && (training() || readers.back().depth > i);
    const bool module = pattern_.has_module(i);
    const bool own = training() || (compute_ == DType::kF32 && stored && !module);
    y_[i] = own ? Rows(DType::kF32, D) : shared;
    if (!stored) {
      history_[i] = Tensor();
    } else if (compute_ == DType::kBF16 || module) {
      history_[i] = Rows(compute_, D);
    } else {
      history_[i] = y_[i];
    }
    x_[i] = stored && compute_ == DType::kF32 ? history_[i] : y_[i];
    dy_[i] = module && training() ? y_[i] : Tensor();
  }
}

// What comes and goes through the cuts of a stage.
void Activations::LayOutCuts() {
  const int64_t D = config_.n_embd;
  for (const int j : stage_.in.sources) history_[j] = Rows(compute_, D);
  if (!stage_.first()) {
    const int cut = stage_.in.block;
    y_[cut] = Rows(DType::kF32, D);
    if (pattern_.has_module(cut)) {
      dy_[cut] = y_[cut];
    } else if (!pattern_.readers(cut).empty()) {
      history_[cut] = compute_ == DType::kF32 ? y_[cut] : Rows(compute_, D);
    }
  }
  for (const Cut* cut : {&stage_.in, &stage_.out}) {
    // A tensor that crosses both cuts is laid out at the first.
    const bool again = cut == &stage_.out;
    for (const PartialSum& sum : cut->sums) {
      if (again && FindSum(stage_.in, sum.module) != nullptr) continue;
      sums_[sum.module] = Rows(DType::kF32, D);
    }
    for (const int j : cut->sources) {
      const std::vector<int>& before = stage_.in.sources;
      if (again && std::binary_search(before.begin(), before.end(), j)) continue;
      dsources_[j] = Rows(DType::kF32, D);
    }
  }
  for (int j = 0; j <= config_.n_layer; ++j) {
    dy_of_[j].assign(config_.n_layer + 1, Tensor());
    for (int i = j; i <= config_.n_layer; ++i) {
      if (stage_.Adds(pattern_, i, j)) dy_of_[j][i] = stage_.blocks.contains(i) ? dy_[i] : sums_[i];
    }
  }
}

}  // namespace denseformer

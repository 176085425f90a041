#include "model/model.h"

namespace denseformer {

Model::Model(const ModelConfig& config, DType compute, ModelUse use)
    : config_((config.Validate(), config)),
      pattern_(DepthPattern::Parse(config.dwa, config.n_layer)),
      table_(config_, pattern_),
      compute_(compute),
      use_(use),
      weights_(static_cast<size_t>(table_.buffer_size()) * sizeof(float)) {
  tensors_ = table_.Bind(static_cast<float*>(weights_.data()));
  if (trainable()) {
    gradients_ = Storage(weights_.bytes());
    gradient_tensors_ = table_.Bind(static_cast<float*>(gradients_.data()));
  }
  auto pack = [&](const Tensor& master) { return PackedWeight(master, compute_); };
  for (const BlockTensors& block : tensors_.blocks) {
    packed_.push_back({pack(block.qkv_weight), pack(block.proj_weight), pack(block.fc_weight),
                       pack(block.mlp_proj_weight)});
  }
  packed_head_.push_back(pack(tensors_.wte));
  matrices_.push_back(&packed_head_.front());
  for (PackedBlock& block : packed_) {
    matrices_.insert(matrices_.end(), {&block.qkv, &block.proj, &block.fc, &block.mlp_proj});
  }
}

std::span<float> Model::weights() const {
  return {static_cast<float*>(weights_.data()), static_cast<size_t>(table_.buffer_size())};
}

std::span<float> Model::gradients() const {
  DF_CHECK(trainable());
  return {static_cast<float*>(gradients_.data()), static_cast<size_t>(table_.buffer_size())};
}

void Model::Initialize(uint64_t seed) {
  table_.Initialize(seed, static_cast<float*>(weights_.data()));
  WeightsChanged();
}

void Model::WeightsChanged() {
  for (PackedWeight* matrix : matrices_) matrix->Refresh();
}

void Model::ChangeWeights(WeightChange change) {
  auto matrix = matrices_.begin();
  for (const Parameter& p : table_.all()) {
    if (!p.matrix()) {
      change(p, p.offset, p.offset + p.count());
      continue;
    }
    PackedWeight& packed = **matrix++;
    const int64_t columns = packed.in();
    DF_CHECK(packed.out() * columns == p.count());
    packed.Change([&](int64_t first, int64_t last) {
      change(p, p.offset + first * columns, p.offset + last * columns);
    });
  }
}

}  // namespace denseformer

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
  auto pack = [&](const Tensor& master) { return PackedWeight(master, compute_, trainable()); };
  for (const BlockTensors& block : tensors_.blocks) {
    packed_.push_back({pack(block.qkv_weight), pack(block.proj_weight), pack(block.fc_weight),
                       pack(block.mlp_proj_weight)});
  }
  packed_head_.push_back(pack(tensors_.wte));
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
  for (PackedBlock& block : packed_) {
    block.qkv.Refresh();
    block.proj.Refresh();
    block.fc.Refresh();
    block.mlp_proj.Refresh();
  }
  packed_head_.front().Refresh();
}

}  // namespace denseformer

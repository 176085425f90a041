#include "model/model.h"

namespace denseformer {
namespace {

const ModelConfig& Validated(const ModelConfig& config) {
  config.Validate();
  return config;
}

}  // namespace

Model::Model(const ModelConfig& config, DType compute, ModelUse use)
    : config_(Validated(config)),
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
  for (const Parameter& p : table_.all()) {
    if (p.matrix()) matrices_.emplace_back(ParameterTable::View(p, weights().data()), compute_);
  }
  for (const BlockTensors& block : tensors_.blocks) {
    packed_.push_back({PackedOf(block.qkv_weight), PackedOf(block.proj_weight),
                       PackedOf(block.fc_weight), PackedOf(block.mlp_proj_weight)});
  }
}

const PackedWeight& Model::PackedOf(const Tensor& weight) const {
  const int64_t offset = weight.f32() - weights().data();
  return matrices_[static_cast<size_t>(table_.MatrixAt(offset))];
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
  for (PackedWeight& matrix : matrices_) matrix.Refresh();
}

void Model::ChangeWeights(WeightChange change) {
  auto matrix = matrices_.begin();
  for (const Parameter& p : table_.all()) {
    if (!p.matrix()) {
      change(p, p.offset, p.offset + p.count());
      continue;
    }
    PackedWeight& packed = *matrix++;
    const int64_t columns = packed.in();
    DF_CHECK(packed.out() * columns == p.count());
    packed.Change([&](int64_t first, int64_t last) {
      change(p, p.offset + first * columns, p.offset + last * columns);
    });
  }
}

}  // namespace denseformer

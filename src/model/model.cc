#include "model/model.h"

#include "base/parallel.h"

namespace denseformer {
namespace {

const ModelConfig& Validated(const ModelConfig& config) {
  config.Validate();
  return config;
}

}  // namespace

Model::Model(const ModelConfig& config, DType compute, ModelUse use, const Stage* stage)
    : config_(Validated(config)),
      pattern_(DepthPattern::Parse(config.dwa, config.n_layer)),
      mixer_(ParseMixer(config)),
      stage_(stage != nullptr ? *stage : WholeStage(config.n_layer)),
      table_(config_, pattern_, stage_),
      compute_(compute),
      use_(use),
      weights_(static_cast<size_t>(table_.buffer_size()) * sizeof(float)) {
  tensors_ = table_.Bind(static_cast<float*>(weights_.data()));
  if (trainable()) {
    gradients_ = Storage(weights_.bytes());
    gradient_tensors_ = table_.Bind(static_cast<float*>(gradients_.data()));
  }
  for (const Parameter& p : table_.all()) {
    const Tensor matrix = ParameterTable::View(p, weights().data());
    int64_t first = 0;
    for (const int64_t rows : p.packed_rows) {
      matrices_.emplace_back(matrix.Rows(first, rows), compute_);
      first += rows;
    }
  }
  if (!stage_.whole()) RequireSplittable(config_);
  for (int i = stage_.blocks.first; i <= stage_.blocks.last; ++i) {
    const BlockTensors& block = tensors_.blocks[i - 1];
    std::vector<const PackedWeight*> qkv;
    for (int64_t rows = 0; rows < block.qkv_weight.rows(); rows += qkv.back()->out()) {
      qkv.push_back(&Packed(block.qkv_weight, static_cast<int>(qkv.size())));
    }
    packed_.push_back(
        {qkv, Packed(block.proj_weight), Packed(block.fc_weight), Packed(block.mlp_proj_weight)});
  }
}

const PackedWeight& Model::Packed(const Tensor& weight, int part) const {
  const int64_t offset = weight.f32() - weights().data();
  return matrices_[static_cast<size_t>(table_.PackedAt(offset) + part)];
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
      ParallelFor(p.count(), /*grain=*/1 << 16, [&](int64_t begin, int64_t end, int) {
        change(p, p.offset + begin, p.offset + end);
      });
      continue;
    }
    int64_t begin = p.offset;
    for (size_t part = 0; part < p.packed_rows.size(); ++part) {
      PackedWeight& packed = *matrix++;
      const int64_t columns = packed.in();
      packed.Change([&](int64_t first, int64_t last) {
        change(p, begin + first * columns, begin + last * columns);
      });
      begin += packed.out() * columns;
    }
    DF_CHECK(begin == p.offset + p.count());
  }
}

}  // namespace denseformer

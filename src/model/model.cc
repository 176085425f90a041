#include "model/model.h"

#include <algorithm>

#include "base/parallel.h"

namespace denseformer {
namespace {

const ModelConfig& Validated(const ModelConfig& config) {
  config.Validate();
  return config;
}

// Rows that are read and packed at once: a multiple of what a packed weight takes.
constexpr int64_t kFillRows = 32;

size_t VectorBytes(const Parameter& p) {
  const size_t bytes = static_cast<size_t>(p.count()) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Calls visit(parameter, first row, rows) for each matrix that GEMMs read.
template <class F>
void ForEachPart(const ParameterTable& table, F visit) {
  for (const Parameter& p : table.all()) {
    int64_t first = 0;
    for (const int64_t rows : p.packed_rows) {
      visit(p, first, rows);
      first += rows;
    }
  }
}

}  // namespace

Model::Model(const ModelConfig& config, DType compute, ModelUse use, const Stage* stage)
    : config_(Validated(config)),
      pattern_(DepthPattern::Parse(config.dwa, config.n_layer)),
      mixer_(ParseMixer(config)),
      stage_(stage != nullptr ? *stage : WholeStage(config.n_layer)),
      table_(config_, pattern_, stage_),
      compute_(compute),
      format_(FormatOf(compute)),
      use_(use),
      weights_(static_cast<size_t>(table_.buffer_size()) * sizeof(float)) {
  tensors_ = table_.Bind(static_cast<float*>(weights_.data()));
  if (trainable()) {
    gradients_ = Storage(weights_.bytes());
    gradient_tensors_ = table_.Bind(static_cast<float*>(gradients_.data()));
  }
  ForEachPart(table_, [&](const Parameter& p, int64_t first, int64_t rows) {
    matrices_.emplace_back(ParameterTable::View(p, weights().data()).Rows(first, rows), compute_);
  });
  if (!stage_.whole()) RequireSplittable(config_);
  BindBlocks();
}

Model::Model(const ModelConfig& config, WeightFormat format)
    : config_(Validated(config)),
      pattern_(DepthPattern::Parse(config.dwa, config.n_layer)),
      mixer_(ParseMixer(config)),
      stage_(WholeStage(config.n_layer)),
      table_(config_, pattern_, stage_),
      compute_(ComputeOf(format)),
      format_(format),
      frozen_(true),
      use_(ModelUse::kInference),
      weights_(FrozenVectorBytes(table_) + FrozenMatrixBytes(table_, format)) {
  std::byte* memory = static_cast<std::byte*>(weights_.data()) + FrozenVectorBytes(table_);
  ForEachPart(table_, [&](const Parameter& p, int64_t, int64_t rows) {
    matrices_.emplace_back(rows, p.shape[1], format, memory);
    memory += PackedWeight::FrozenBytes(rows, p.shape[1], format);
  });
  // GEMMs run in about this order; the embedding is the head.
  for (size_t m = 0; m < matrices_.size(); ++m) {
    matrices_[m].SetNext(matrices_[(m + 1) % matrices_.size()]);
  }
  std::byte* vectors = static_cast<std::byte*>(weights_.data());
  size_t matrix = 0;
  tensors_ = table_.Bind([&](const Parameter& p) {
    if (p.matrix()) {
      // No fp32 elements: a wrong dtype, so that whoever reads them finds out.
      const Tensor key(&matrices_[matrix], DType::kBF16, p.shape);
      matrix += p.packed_rows.size();
      return key;
    }
    const Tensor view(reinterpret_cast<float*>(vectors), p.shape);
    vectors += VectorBytes(p);
    return view;
  });
  BindBlocks();
}

void Model::BindBlocks() {
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

size_t Model::FrozenMatrixBytes(const ParameterTable& table, WeightFormat format) {
  size_t bytes = 0;
  ForEachPart(table, [&](const Parameter& p, int64_t, int64_t rows) {
    bytes += PackedWeight::FrozenBytes(rows, p.shape[1], format);
  });
  return bytes;
}

size_t Model::FrozenVectorBytes(const ParameterTable& table) {
  size_t bytes = 0;
  for (const Parameter& p : table.all()) bytes += p.matrix() ? 0 : VectorBytes(p);
  return bytes;
}

void Model::Fill(RowSource source, FunctionRef<void(const Parameter& parameter)> done) {
  DF_CHECK(frozen());
  std::byte* vectors = static_cast<std::byte*>(weights_.data());
  auto matrix = matrices_.begin();
  for (const Parameter& p : table_.all()) {
    if (!p.matrix()) {
      const Tensor view(reinterpret_cast<float*>(vectors), p.shape);
      source(p, 0, view.rows(), view.f32(), nullptr);
      vectors += VectorBytes(p);
    }
    int64_t begin = 0;
    for (const int64_t rows : p.packed_rows) {
      PackedWeight& packed = *matrix++;
      const int64_t columns = p.shape[1], bands = (rows + kFillRows - 1) / kFillRows;
      ParallelFor(bands, /*grain=*/1, [&](int64_t first_band, int64_t last_band, int) {
        std::vector<float> values(static_cast<size_t>(kFillRows * columns)), scales(kFillRows);
        for (int64_t band = first_band; band < last_band; ++band) {
          const int64_t first = band * kFillRows, count = std::min(kFillRows, rows - first);
          const bool scaled = source(p, begin + first, count, values.data(), scales.data());
          packed.PackRows(first, count, values.data(), scaled ? scales.data() : nullptr);
        }
      });
      begin += rows;
    }
    done(p);
  }
}

Model Model::Frozen(WeightFormat format) const {
  DF_CHECK(!frozen());
  Model model(config_, format);
  const auto copy = [&](const Parameter& p, int64_t first, int64_t count, float* values, float*) {
    const int64_t columns = p.shape[p.shape.rank() - 1];
    std::copy_n(weights().data() + p.offset + first * columns, count * columns, values);
    return false;
  };
  model.Fill(copy, [](const Parameter&) {});
  return model;
}

const PackedWeight& Model::Packed(const Tensor& weight, int part) const {
  if (frozen()) return static_cast<const PackedWeight*>(weight.raw())[part];
  const int64_t offset = weight.f32() - weights().data();
  return matrices_[static_cast<size_t>(table_.PackedAt(offset) + part)];
}

std::span<float> Model::weights() const {
  DF_CHECK(!frozen());
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

void Model::WeightsChanged() { WeightsChanged(0, table_.buffer_size()); }

void Model::WeightsChanged(int64_t begin, int64_t end) {
  auto matrix = matrices_.begin();
  for (const Parameter& p : table_.all()) {
    for (size_t part = 0; part < p.packed_rows.size(); ++part, ++matrix) {
      if (p.offset >= begin && p.offset + p.count() <= end) matrix->Refresh();
    }
  }
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

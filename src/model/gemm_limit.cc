#include "model/gemm_limit.h"

#include <algorithm>
#include <vector>

#include "kernels/gemm/gemm.h"

namespace denseformer {
namespace {

// The head works on chunks of rows, as in the model.
constexpr int64_t kHeadRows = 512;

}  // namespace

struct GemmLimit::Impl {
  struct Layer {
    Storage master, gradient, x, y;
    Tensor x_tensor, y_tensor, gradient_tensor;
    PackedWeight weight;
    int64_t calls;

    Layer(int64_t out, int64_t in, int64_t rows, int64_t calls_, DType compute, ModelUse use)
        : master(static_cast<size_t>(out * in) * 4),
          gradient(use == ModelUse::kTraining ? master.bytes() : 0),
          x(static_cast<size_t>(rows * in) * SizeOf(compute)),
          y(static_cast<size_t>(rows * out) * SizeOf(compute)),
          x_tensor(x.data(), compute, {rows, in}),
          y_tensor(y.data(), compute, {rows, out}),
          gradient_tensor(static_cast<float*>(gradient.data()), {out, in}),
          weight(Tensor(static_cast<float*>(master.data()), {out, in}), compute),
          calls(calls_) {
      weight.Refresh();
    }
  };

  int64_t rows;
  std::vector<std::unique_ptr<Layer>> block;
  std::unique_ptr<Layer> head;
  int depth;
};

GemmLimit::GemmLimit(const ModelConfig& config, DType compute, int64_t rows, ModelUse use)
    : impl_(std::make_unique<Impl>()) {
  const int64_t D = config.n_embd;
  impl_->rows = rows;
  impl_->depth = config.n_layer;
  const int64_t shapes[][2] = {{3 * D, D}, {D, D}, {4 * D, D}, {D, 4 * D}};
  for (const auto& [out, in] : shapes) {
    impl_->block.push_back(std::make_unique<Impl::Layer>(out, in, rows, 1, compute, use));
  }
  const int64_t chunk = std::min(rows, kHeadRows);
  impl_->head = std::make_unique<Impl::Layer>(config.vocab_size, D, chunk,
                                              (rows + chunk - 1) / chunk, compute, use);
}

GemmLimit::~GemmLimit() = default;

void GemmLimit::Forward() {
  auto run = [](Impl::Layer& layer) {
    LinearForward(layer.x_tensor, layer.weight, Tensor(), layer.y_tensor);
  };
  for (int i = 0; i < impl_->depth; ++i) {
    for (auto& layer : impl_->block) run(*layer);
  }
  for (int64_t call = 0; call < impl_->head->calls; ++call) run(*impl_->head);
}

void GemmLimit::Backward() {
  auto run = [](Impl::Layer& layer) {
    LinearBackwardWeight(layer.y_tensor, layer.x_tensor, layer.gradient_tensor, /*add=*/false);
    LinearBackwardInput(layer.y_tensor, layer.weight, layer.x_tensor);
  };
  for (int64_t call = 0; call < impl_->head->calls; ++call) run(*impl_->head);
  for (int i = 0; i < impl_->depth; ++i) {
    for (auto& layer : impl_->block) run(*layer);
  }
}

double GemmLimit::forward_flops() const {
  double flops = 0;
  for (const auto& layer : impl_->block) {
    flops += 2.0 * static_cast<double>(layer->weight.out() * layer->weight.in()) *
             static_cast<double>(impl_->rows) * impl_->depth;
  }
  return flops + 2.0 * static_cast<double>(impl_->head->weight.out() * impl_->head->weight.in()) *
                     static_cast<double>(impl_->rows);
}

}  // namespace denseformer

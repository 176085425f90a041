#include "oracle/torch_adamw.h"

// clip_grad.h uses names that it does not include.
// clang-format off
#include <torch/optim/adamw.h>
#include <torch/nn/utils/clip_grad.h>
// clang-format on

#include <algorithm>

namespace denseformer {

struct TorchAdamW::Impl {
  Model& model;
  std::vector<at::Tensor> weights;  // in the order of the table
  std::unique_ptr<torch::optim::AdamW> optimizer;
};

TorchAdamW::TorchAdamW(Model& model, const TorchAdamWOptions& options)
    : impl_(new Impl{model, {}, nullptr}) {
  std::vector<at::Tensor> decayed, plain;
  for (const Parameter& p : model.table().all()) {
    at::Tensor weight = at::from_blob(model.weights().data() + p.offset, {p.count()}, at::kFloat);
    weight = weight.clone().set_requires_grad(true);
    impl_->weights.push_back(weight);
    // By the recipe: all but the embedding, norms and biases.
    const bool decays = p.name != "transformer.wte.weight" &&
                        p.name.find(".ln_") == std::string::npos && !p.name.ends_with(".bias");
    (decays ? decayed : plain).push_back(weight);
  }
  const auto settings = [&options](double decay) {
    return torch::optim::AdamWOptions(1e-3)
        .betas({options.beta1, options.beta2})
        .eps(options.epsilon)
        .weight_decay(decay);
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed,
                      std::make_unique<torch::optim::AdamWOptions>(settings(options.weight_decay)));
  groups.emplace_back(plain, std::make_unique<torch::optim::AdamWOptions>(settings(0)));
  impl_->optimizer = std::make_unique<torch::optim::AdamW>(groups, settings(0));
}

TorchAdamW::~TorchAdamW() = default;

void TorchAdamW::Step(const std::vector<double>& gradients, double rate, double clip) {
  const std::span<const Parameter> all = impl_->model.table().all();
  for (size_t p = 0; p < all.size(); ++p) {
    const at::Tensor gradient = at::from_blob(const_cast<double*>(gradients.data()) + all[p].offset,
                                              {all[p].count()}, at::kDouble);
    impl_->weights[p].mutable_grad() = gradient.to(at::kFloat);
  }
  if (clip > 0) torch::nn::utils::clip_grad_norm_(impl_->weights, clip);
  for (auto& group : impl_->optimizer->param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(rate);
  }
  impl_->optimizer->step();
  for (size_t p = 0; p < all.size(); ++p) {
    const float* values = impl_->weights[p].data_ptr<float>();
    std::copy_n(values, all[p].count(), impl_->model.weights().data() + all[p].offset);
  }
  impl_->model.WeightsChanged();
}

}  // namespace denseformer

#include "oracle/torch_oracle.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "base/error.h"

namespace denseformer {
namespace {

class Oracle {
 public:
  Oracle(const Model& model, at::ScalarType dtype)
      : config_(model.config()), pattern_(model.pattern()), dtype_(dtype) {
    for (const Parameter& parameter : model.table().all()) {
      std::vector<int64_t> sizes;
      for (int i = 0; i < parameter.shape.rank(); ++i) sizes.push_back(parameter.shape[i]);
      at::Tensor weight =
          at::from_blob(model.weights().data() + parameter.offset, sizes, at::kFloat)
              .to(dtype_, /*non_blocking=*/false, /*copy=*/true);
      weight.set_requires_grad(true);
      weights_[parameter.name] = weight;
    }
  }

  const at::Tensor& Weight(const std::string& name) const { return weights_.at(name); }

  // After the backward pass: see OracleResult.
  std::map<std::string, double> ProductNorms() const {
    std::map<std::string, double> norms;
    for (const auto& [name, input, product] : scaled_) {
      // product = input * w, so dproduct is dy.
      const double norm = (input * product.grad()).square().sum().sqrt().item<double>();
      norms[name] = std::max(norms[name], norm);
    }
    return norms;
  }

  // Logits [B * T, V] of tokens [B, T].
  at::Tensor Forward(const at::Tensor& tokens) {
    std::vector<at::Tensor> x = {at::embedding(Weight("transformer.wte.weight"), tokens)};
    at::Tensor y = x[0];
    for (int i = 1; i <= config_.n_layer; ++i) {
      x.push_back(Block(y, "transformer.h." + std::to_string(i - 1) + "."));
      y = x[i];
      if (!pattern_.has_module(i)) continue;
      const std::string alpha = "dwa_modules.alphas." + std::to_string(i - 1) + ".weight";
      std::vector<at::Tensor> terms;
      for (int j : pattern_.sources(i)) {
        terms.push_back(Scaled(x[j], alpha, Weight(alpha)[0][static_cast<int64_t>(terms.size())]));
      }
      y = at::stack(terms).sum(0);
    }
    const at::Tensor normed = Norm(y, "transformer.ln_f");
    return at::matmul(normed, Weight("transformer.wte.weight").t())
        .reshape({-1, config_.vocab_size});
  }

 private:
  // input * weight, where `weight` is an element of the parameter `name`.
  at::Tensor Scaled(const at::Tensor& input, const std::string& name, const at::Tensor& weight) {
    const at::Tensor product = input * weight;
    product.retain_grad();
    scaled_.push_back({name, input.detach(), product});
    return product;
  }

  at::Tensor Bias(const std::string& name) const {
    const auto found = weights_.find(name + ".bias");
    return found == weights_.end() ? at::Tensor() : found->second;
  }

  at::Tensor Norm(const at::Tensor& x, const std::string& name) const {
    return at::layer_norm(x, {config_.n_embd}, Weight(name + ".weight"), Bias(name), 1e-5,
                          /*cudnn_enable=*/false);
  }

  at::Tensor Linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor y = at::matmul(x, Weight(name + ".weight").t());
    const at::Tensor bias = Bias(name);
    return bias.defined() ? y + bias : y;
  }

  // x * gain, or x itself in a model without gains.
  at::Tensor Gained(const at::Tensor& x, const std::string& name) {
    return config_.gains ? Scaled(x, name, Weight(name)) : x;
  }

  // [B, H, T, head] with each adjacent pair turned by its angle at position t.
  at::Tensor Rotate(const at::Tensor& x) const {
    const int64_t length = x.size(2), head_size = x.size(3);
    const at::Tensor position = at::arange(length, at::kDouble).unsqueeze(1);
    const at::Tensor pair = at::arange(head_size / 2, at::kDouble);
    const at::Tensor angle =
        position * at::pow(10000.0, pair * -2.0 / static_cast<double>(head_size));
    const at::Tensor cosine = at::cos(angle).to(dtype_), sine = at::sin(angle).to(dtype_);
    const at::Tensor pairs = x.reshape({x.size(0), x.size(1), length, head_size / 2, 2});
    const at::Tensor a = pairs.select(4, 0), b = pairs.select(4, 1);
    return at::stack({a * cosine - b * sine, b * cosine + a * sine}, 4).reshape(x.sizes());
  }

  at::Tensor Attention(const at::Tensor& x, const std::string& prefix) const {
    const int64_t B = x.size(0), T = x.size(1), D = x.size(2);
    const auto heads = [&](const at::Tensor& t) {
      return t.reshape({B, T, config_.n_head, config_.head_size()}).transpose(1, 2);
    };
    const std::vector<at::Tensor> qkv = Linear(x, prefix + "attn.c_attn").split(D, 2);
    const at::Tensor q = Rotate(heads(qkv[0])), k = Rotate(heads(qkv[1])), v = heads(qkv[2]);
    const at::Tensor later = at::ones({T, T}, at::kBool).triu(1);
    const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(config_.head_size());
    const at::Tensor probabilities = at::softmax(scores.masked_fill(later, -INFINITY), 3);
    const at::Tensor mixed = at::matmul(probabilities, v).transpose(1, 2).reshape({B, T, D});
    return Linear(mixed, prefix + "attn.c_proj");
  }

  at::Tensor Block(const at::Tensor& y, const std::string& prefix) {
    const at::Tensor middle =
        Gained(y, prefix + "gain_attn") + Attention(Norm(y, prefix + "ln_1"), prefix);
    const at::Tensor hidden = at::gelu(Linear(Norm(middle, prefix + "ln_2"), prefix + "mlp.c_fc"));
    return Gained(middle, prefix + "gain_mlp") + Linear(hidden, prefix + "mlp.c_proj");
  }

  const ModelConfig config_;
  const DepthPattern pattern_;
  const at::ScalarType dtype_;
  std::map<std::string, at::Tensor> weights_;
  struct Product {
    std::string name;
    at::Tensor input, product;
  };
  std::vector<Product> scaled_;
};

at::Tensor Int64s(std::span<const int32_t> values, at::IntArrayRef sizes) {
  at::Tensor tensor = at::empty(sizes, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

std::vector<double> ToVector(const at::Tensor& tensor) {
  const at::Tensor copy = tensor.detach().to(at::kDouble).contiguous();
  return {copy.data_ptr<double>(), copy.data_ptr<double>() + copy.numel()};
}

}  // namespace

OracleResult RunOracle(const Model& model, const Batch& batch, OraclePrecision precision) {
  at::set_num_threads(1);  // the tensors are too small to share
  Oracle oracle(model, precision == OraclePrecision::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor logits = oracle.Forward(Int64s(batch.tokens, {batch.sequences, batch.length}));
  OracleResult result;
  result.logits = ToVector(logits);
  if (batch.targets.empty()) return result;

  const at::Tensor targets = Int64s(batch.targets, {batch.sequences * batch.length});
  const at::Tensor loss =
      at::cross_entropy_loss(logits, targets, /*weight=*/{}, at::Reduction::Mean,
                             /*ignore_index=*/-1);
  result.loss = loss.item<double>();
  loss.backward();
  result.product_norms = oracle.ProductNorms();
  result.gradients.resize(static_cast<size_t>(model.table().buffer_size()));
  for (const Parameter& parameter : model.table().all()) {
    const at::Tensor& gradient = oracle.Weight(parameter.name).grad();
    DF_CHECK_MSG(gradient.defined(), "no gradient of {}", parameter.name);
    const std::vector<double> values = ToVector(gradient);
    std::copy(values.begin(), values.end(), result.gradients.begin() + parameter.offset);
  }
  return result;
}

}  // namespace denseformer

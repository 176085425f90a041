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
    std::vector<at::Tensor> residual = {x[0]};  // Y^r of every depth
    std::vector<at::Tensor> y = {x[0]};         // streams of the newest depth
    for (int i = 1; i <= config_.n_layer; ++i) {
      x.push_back(Block(y, "transformer.h." + std::to_string(i - 1) + "."));
      y = {x[i]};
      if (pattern_.has_module(i)) y = Mix(i, x, residual);
      residual.push_back(y[0]);
    }
    const at::Tensor normed = Norm(y[0], "transformer.ln_f");
    return at::matmul(normed, Weight("transformer.wte.weight").t())
        .reshape({-1, config_.vocab_size});
  }

 private:
  static at::Tensor Rms(const at::Tensor& x) {
    return x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + 1e-6);
  }

  // The streams of the module after block i, each written from its definition.
  std::vector<at::Tensor> Mix(int i, const std::vector<at::Tensor>& x,
                              const std::vector<at::Tensor>& residual) {
    const std::string at_block = std::to_string(i - 1);
    const std::string alpha = "dwa_modules.alphas." + at_block + ".weight";
    const std::string mixer = "dwa_modules.mixers." + at_block + ".";
    const std::vector<int>& sources = pattern_.sources(i);
    const int64_t n = static_cast<int64_t>(sources.size());
    const size_t streams = i == config_.n_layer ? 1 : config_.streams.size();
    std::vector<at::Tensor> out;
    for (int64_t c = 0; c < static_cast<int64_t>(streams); ++c) {
      std::vector<at::Tensor> terms;
      if (config_.mixer == "static") {
        for (int j : sources) {
          terms.push_back(
              Scaled(x[j], alpha, Weight(alpha)[c][static_cast<int64_t>(terms.size())]));
        }
        out.push_back(at::stack(terms).sum(0));
      } else if (config_.mixer == "dynamic") {
        const at::Tensor hidden = at::gelu(at::matmul(Rms(x[i]), Weight(mixer + "w1.weight").t()));
        const at::Tensor z = at::matmul(hidden, Weight(mixer + "w2.weight").t());
        const at::Tensor a = z.slice(-1, c * n, (c + 1) * n) + Weight(alpha)[c];
        const bool prepost = config_.mixer_norm == "prepost";
        for (int64_t k = 0; k < n; ++k) {
          const at::Tensor& source = x[sources[k]];
          terms.push_back(a.slice(-1, k, k + 1) * (prepost ? Rms(source) : source));
        }
        const at::Tensor sum = at::stack(terms).sum(0);
        out.push_back(prepost ? x[i] + Rms(sum) * Weight(mixer + "post.weight")[c] : sum);
      } else {
        std::vector<at::Tensor> scores;
        for (int j : sources) {
          terms.push_back(j == 0 ? x[0] : x[j] - residual[j - 1]);
          scores.push_back((Rms(terms.back()) * Weight(mixer + "query")[c]).sum(-1));
        }
        const at::Tensor p = at::softmax(at::stack(scores), 0).unsqueeze(-1);
        const at::Tensor sum = (p * at::stack(terms)).sum(0);
        out.push_back(config_.mixer == "attention" ? x[i] + Weight(mixer + "gate")[c] * sum : sum);
      }
    }
    return out;
  }

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

  // [B, H, T, head] with each adjacent pair rotated by its angle at position t.
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

  // [B, T, 3 D]: q, k and v, each from the norm of the stream that it reads.
  at::Tensor Qkv(const std::vector<at::Tensor>& y, const std::string& prefix) const {
    const std::string name = prefix + "attn.c_attn";
    const at::Tensor first = Norm(y[y.size() == 4 ? 1 : 0], prefix + "ln_1");
    if (y.size() == 1) return Linear(first, name);
    const at::Tensor value = Norm(y.back(), prefix + "ln_v");
    const at::Tensor key = y.size() == 4 ? Norm(y[2], prefix + "ln_k") : first;
    const std::vector<at::Tensor> inputs = {first, key, value};
    const std::vector<at::Tensor> parts = Weight(name + ".weight").chunk(3, 0);
    std::vector<at::Tensor> out;
    for (size_t p = 0; p < 3; ++p) {
      out.push_back(at::matmul(inputs[p], parts[p].t()));
      if (Bias(name).defined()) out.back() = out.back() + Bias(name).chunk(3, 0)[p];
    }
    return at::cat(out, -1);
  }

  at::Tensor Attention(const std::vector<at::Tensor>& y, const std::string& prefix) const {
    const int64_t B = y[0].size(0), T = y[0].size(1), D = y[0].size(2);
    const auto heads = [&](const at::Tensor& t) {
      return t.reshape({B, T, config_.n_head, config_.head_size()}).transpose(1, 2);
    };
    const std::vector<at::Tensor> qkv = Qkv(y, prefix).split(D, 2);
    const at::Tensor q = Rotate(heads(qkv[0])), k = Rotate(heads(qkv[1])), v = heads(qkv[2]);
    const at::Tensor later = at::ones({T, T}, at::kBool).triu(1);
    const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(config_.head_size());
    const at::Tensor probabilities = at::softmax(scores.masked_fill(later, -INFINITY), 3);
    const at::Tensor mixed = at::matmul(probabilities, v).transpose(1, 2).reshape({B, T, D});
    return Linear(mixed, prefix + "attn.c_proj");
  }

  at::Tensor Block(const std::vector<at::Tensor>& y, const std::string& prefix) {
    const at::Tensor middle = Gained(y[0], prefix + "gain_attn") + Attention(y, prefix);
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

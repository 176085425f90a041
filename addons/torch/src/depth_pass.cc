#include "depth_pass.h"

#include <torch/csrc/autograd/engine.h>

#include <string>

namespace denseformer::pytorch {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

constexpr const char* kOnce =
    "denseformer: the fused depth-weighted average can be differentiated once; for create_graph "
    "use "
    "double precision, which takes plain operations";

std::string Describe(const at::Tensor& x) {
  std::ostringstream text;
  text << at::toString(x.scalar_type()) << " " << x.sizes() << " on " << x.device();
  return text.str();
}

size_t ScratchBytes(const DepthPattern& pattern, int64_t rows, int64_t cols,
                    const AveragerOptions& options) {
  Arena measure;
  DepthAverager(pattern, rows, cols, measure, options);
  return measure.peak();
}

// Backward nodes may run in any order that the graph allows, so each reads its own memory.
AveragerOptions Options() {
  AveragerOptions options;
  options.backward.group = 1;
  return options;
}

c10::IValue Capsule(const c10::intrusive_ptr<PassData>& data) {
  return c10::IValue::make_capsule(data);
}
c10::intrusive_ptr<PassData> DataOf(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<PassData>(ctx->saved_data["data"].toCapsule());
}

struct EnterFunction : public ::torch::autograd::Function<EnterFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weights,
                            const c10::intrusive_ptr<PassData>& data, int64_t depth) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["data"] = Capsule(data);
    ctx->saved_data["depth"] = depth;
    ctx->saved_data["weights"] = weights.requires_grad();
    return at::empty({0}, x.options());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    TORCH_CHECK(!at::GradMode::is_enabled(), kOnce);
    const c10::intrusive_ptr<PassData> data = DataOf(ctx);
    at::Tensor dweights;
    if (ctx->saved_data["weights"].toBool()) {
      dweights = at::zeros({data->pattern().weight_count()}, at::kFloat);
    }
    const at::Tensor dx = data->Backward(ctx->saved_data["depth"].toInt(), dweights);
    return {dx, dweights, at::Tensor(), at::Tensor()};
  }
};

struct AverageFunction : public ::torch::autograd::Function<AverageFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList entered,
                            const c10::intrusive_ptr<PassData>& data, int64_t depth) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["data"] = Capsule(data);
    ctx->saved_data["depth"] = depth;
    ctx->saved_data["count"] = static_cast<int64_t>(entered.size());
    return data->Forward(depth);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(), kOnce);
    if (grads[0].defined()) {
      PassData::KeepGradient(DataOf(ctx), ctx->saved_data["depth"].toInt(), grads[0]);
    }
    return variable_list(ctx->saved_data["count"].toInt() + 2);
  }
};

// Y of a depth for an activation checkpoint that recomputes: the values, with a node that no
// backward pass comes to, because the checkpoint takes over the graph of the first time.
struct AgainFunction : public ::torch::autograd::Function<AgainFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<PassData>& data, int64_t depth) {
    std::vector<at::Tensor> sources;
    for (int j : data->pattern().sources(depth)) {
      sources.push_back(j == depth ? x.contiguous() : data->x(j));
    }
    return Dwa(sources, data->alphas(depth));
  }

  static variable_list backward(AutogradContext*, const variable_list&) {
    TORCH_CHECK(false,
                "denseformer: a finished pass was continued; call init_accumulators for every "
                "forward pass");
  }
};

}  // namespace

bool Fusible(const at::Tensor& x) {
  return x.device().is_cpu() && x.layout() == at::kStrided && x.numel() > 0 &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         x.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::CPU);
}

Tensor Matrix(const at::Tensor& x) {
  const DType dtype = x.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16;
  const int64_t cols = x.dim() == 0 ? 1 : x.size(-1);
  return Tensor(x.data_ptr(), dtype, {x.numel() / cols, cols});
}

PassData::PassData(const DepthPattern& pattern, const at::Tensor& x, const at::Tensor& weights)
    : pattern_(pattern),
      weights_(weights.detach().to(at::kFloat).contiguous()),
      first_(pattern.depth() + 2),
      x_(pattern.depth() + 1),
      versions_(pattern.depth() + 1),
      arena_(ScratchBytes(pattern, Matrix(x).rows(), Matrix(x).cols(), Options())),
      averager_(pattern, Matrix(x).rows(), Matrix(x).cols(), arena_, Options()),
      alphas_(pattern.depth() + 1),
      history_(pattern.depth() + 1),
      dy_(pattern.depth() + 1),
      unread_(pattern.depth() + 1) {
  for (int i = 0; i <= pattern.depth(); ++i) {
    first_[i + 1] = first_[i] + static_cast<int64_t>(pattern.sources(i).size());
    if (pattern.has_module(i)) alphas_[i] = weights_.data_ptr<float>() + first_[i];
  }
  averager_.StartForward(alphas_);
}

at::Tensor PassData::alphas(int depth) const {
  return weights_.slice(0, first_[depth], first_[depth + 1]);
}

void PassData::Enter(int depth, const at::Tensor& x) {
  if (pattern_.readers(depth).empty()) return;
  x_[depth] = x.detach().contiguous();
  versions_[depth] = x_[depth].is_inference() ? 0 : x_[depth]._version();
  history_[depth] = Matrix(x_[depth]);
}

void PassData::CheckUnmodified(int depth) const {
  const at::Tensor& x = x_[depth];
  TORCH_CHECK(x.is_inference() || x._version() == versions_[depth], "denseformer: the output of ",
              depth == 0 ? "the embedding" : "block_idx " + std::to_string(depth - 1),
              " was modified in place after it was given to DWAModules, and later averages or "
              "gradients need it");
}

at::Tensor PassData::Forward(int depth) {
  for (int j : pattern_.sources(depth)) CheckUnmodified(j);
  const at::Tensor newest = x_[depth].to(at::kFloat);
  at::Tensor y = at::empty_like(newest, at::MemoryFormat::Contiguous);
  averager_.Forward(depth, Matrix(newest), history_, Matrix(y));
  return y.to(x_[depth].scalar_type());
}

void PassData::KeepGradient(const c10::intrusive_ptr<PassData>& data, int depth,
                            const at::Tensor& dy) {
  const std::lock_guard<std::mutex> lock(data->mutex_);
  data->dy_[depth] = dy.detach().to(data->x_[depth].scalar_type()).contiguous();
  data->unread_[depth] = data->pattern_.sources(depth).size();
  if (data->cleaning_) return;
  data->cleaning_ = true;
  // Whatever part of the graph this backward pass covers, nothing of it reaches the next one.
  ::torch::autograd::Engine::get_default_engine().queue_callback([data] { data->DropGradients(); });
}

void PassData::DropGradients() {
  const std::lock_guard<std::mutex> lock(mutex_);
  cleaning_ = false;
  for (at::Tensor& dy : dy_) dy.reset();
}

at::Tensor PassData::Backward(int depth, const at::Tensor& dweights) {
  CheckUnmodified(depth);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Tensor> dy(dy_.size());
  std::vector<float*> dalphas(dy_.size());
  bool any = false;
  for (const DepthPattern::Reader& reader : pattern_.readers(depth)) {
    if (!dy_[reader.depth].defined()) continue;
    any = true;
    dy[reader.depth] = Matrix(dy_[reader.depth]);
    if (dweights.defined()) {
      dalphas[reader.depth] = dweights.data_ptr<float>() + first_[reader.depth];
    }
  }
  if (!any) return at::Tensor();
  const auto options = x_[depth].options().dtype(at::kFloat);
  const at::Tensor dx = pattern_.has_module(depth) ? at::empty(x_[depth].sizes(), options)
                                                   : at::zeros(x_[depth].sizes(), options);
  averager_.Backward(depth, history_, dy, alphas_, dalphas, Matrix(dx));
  for (const DepthPattern::Reader& reader : pattern_.readers(depth)) {
    if (dy_[reader.depth].defined() && --unread_[reader.depth] == 0) dy_[reader.depth].reset();
  }
  return dx.to(x_[depth].scalar_type());
}

DepthPass::DepthPass(Sources sources, const at::Tensor& x, const at::Tensor& weights)
    : sources_(std::move(sources)),
      first_(sources_.size() + 1),
      weights_(weights),
      grad_enabled_(at::GradMode::is_enabled()),
      like_(x.detach()) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    first_[i + 1] = first_[i] + static_cast<int64_t>(sources_[i].size());
  }
  TORCH_CHECK(weights.dim() == 1 && weights.numel() == first_.back(), "denseformer: weights are ",
              weights.sizes(), ", expected [", first_.back(), "]");
  if (Fusible(x) && weights.device().is_cpu()) {
    data_ = c10::make_intrusive<PassData>(PatternOf(sources_), x, weights);
    weights_ = weights.to(at::kFloat);
  }
  CheckInput(x, -1);
  Take(x);
}

void DepthPass::Take(const at::Tensor& x) {
  const int depth = static_cast<int>(next_++);
  if (data_ == nullptr) {
    entered_.push_back(x);
    return;
  }
  data_->Enter(depth, x);
  const bool read = !data_->pattern().readers(depth).empty();
  entered_.push_back(read ? EnterFunction::apply(x, weights_, data_, int64_t{depth})
                          : at::Tensor());
}

void DepthPass::CheckInput(const at::Tensor& x, int64_t block_idx) const {
  TORCH_CHECK(x.sizes() == like_.sizes() && x.scalar_type() == like_.scalar_type() &&
                  x.device() == like_.device(),
              "denseformer: block_idx ", block_idx, " gave ", Describe(x),
              ", but init_accumulators was given ", Describe(like_));
  TORCH_CHECK(at::GradMode::is_enabled() == grad_enabled_, "denseformer: gradients were switched ",
              grad_enabled_ ? "off" : "on", " between init_accumulators and block_idx ", block_idx,
              "; a checkpoint around DWAModules must be one with use_reentrant=False");
}

at::Tensor DepthPass::Plain(int64_t depth, const at::Tensor& newest) const {
  at::Tensor y;
  for (size_t k = 0; k < sources_[depth].size(); ++k) {
    const int64_t j = sources_[depth][k];
    const at::Tensor weight = weights_[first_[depth] + static_cast<int64_t>(k)];
    const at::Tensor term = (j == depth ? newest : entered_[j]) * weight.to(newest.scalar_type());
    y = y.defined() ? y + term : term;
  }
  return y;
}

at::Tensor DepthPass::Next(const at::Tensor& x, int64_t block_idx) {
  const int64_t depth = block_idx + 1, depths = static_cast<int64_t>(sources_.size());
  TORCH_CHECK(depth >= 1 && depth < depths, "denseformer: block_idx ", block_idx,
              ", expected 0 to ", depths - 2);
  TORCH_CHECK(finished() || depth == next_, "denseformer: block_idx ", block_idx,
              " out of order, expected ", next_ - 1);
  CheckInput(x, block_idx);
  const bool again = finished();
  if (!again) Take(x);
  if (sources_[depth].empty()) return x;
  if (data_ == nullptr) return Plain(depth, x);
  if (again) return AgainFunction::apply(x, data_, depth);
  std::vector<at::Tensor> entered;
  for (int64_t j : sources_[depth]) entered.push_back(entered_[j]);
  return AverageFunction::apply(at::TensorList(entered), data_, depth);
}

}  // namespace denseformer::pytorch

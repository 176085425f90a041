#include <denseformer_torch/dwa.h>

#include "denseformer/error.h"
#include "depth_pass.h"

namespace denseformer::pytorch {
namespace {

// A parameter "weight" [1, n]; not a Linear, so that an initializer of every Linear passes it by.
struct AlphaImpl : public ::torch::nn::Module {
  explicit AlphaImpl(int64_t n) { weight = register_parameter("weight", at::empty({1, n})); }
  at::Tensor weight;
};

std::string KxP(int64_t dilation, int64_t period) {
  return std::to_string(dilation) + "x" + std::to_string(period);
}

}  // namespace

Sources PatternSources(const std::string& spec, int64_t n_blocks) {
  TORCH_CHECK(n_blocks >= 1 && n_blocks <= 100000, "denseformer: n_blocks is ", n_blocks,
              ", expected at least 1");
  try {
    const DepthPattern pattern = DepthPattern::Parse(spec, static_cast<int>(n_blocks));
    Sources sources;
    for (int i = 0; i <= pattern.depth(); ++i) {
      sources.emplace_back(pattern.sources(i).begin(), pattern.sources(i).end());
    }
    return sources;
  } catch (const Error& error) {
    TORCH_CHECK(false, "denseformer: ", error.what());
  }
}

DepthPattern PatternOf(const Sources& sources) {
  std::string mask;
  for (size_t i = 1; i < sources.size(); ++i) {
    std::string row(i + 1, '0');
    for (int64_t j : sources[i]) row[j] = '1';
    mask += row + '\n';
  }
  return DepthPattern::FromMask(mask, static_cast<int>(sources.size()) - 1, "sources");
}

DWAModulesImpl::DWAModulesImpl(int64_t n_blocks, int64_t dilation, int64_t period)
    : DWAModulesImpl(n_blocks, KxP(dilation, period)) {}

DWAModulesImpl::DWAModulesImpl(int64_t n_blocks, const std::string& spec)
    : ::torch::nn::Module("DWAModules"), sources_(PatternSources(spec, n_blocks)) {
  alphas_ = register_module("alphas", ::torch::nn::ModuleDict());
  for (int64_t i = 0; i < n_blocks; ++i) {
    const int64_t n = static_cast<int64_t>(sources_[i + 1].size());
    if (n > 0) alphas_->update({{std::to_string(i), std::make_shared<AlphaImpl>(n)}});
  }
  reset_parameters();
}

DWAModulesImpl::~DWAModulesImpl() = default;

void DWAModulesImpl::reset_parameters() {
  const at::NoGradGuard guard;
  for (at::Tensor& weight : parameters()) weight.zero_().select(1, weight.size(1) - 1).fill_(1);
}

at::Tensor DWAModulesImpl::weight(int64_t block_idx) const {
  const std::string name = std::to_string(block_idx);
  return alphas_->contains(name) ? (*alphas_)[name]->named_parameters(false)["weight"]
                                 : at::Tensor();
}

Accumulators DWAModulesImpl::init_accumulators(const at::Tensor& x) {
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < n_blocks(); ++i) {
    if (const at::Tensor alpha = weight(i); alpha.defined()) weights.push_back(alpha.reshape(-1));
  }
  const at::Tensor all = weights.empty() ? at::empty({0}, x.options()) : at::cat(weights);
  Accumulators pass = c10::make_intrusive<DepthPass>(sources_, x, all);
  const std::lock_guard<std::mutex> lock(mutex_);
  passes_[std::this_thread::get_id()] = pass;
  return pass;
}

at::Tensor DWAModulesImpl::forward(const at::Tensor& x, int64_t block_idx) {
  Accumulators pass;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = passes_.find(std::this_thread::get_id());
    TORCH_CHECK(found != passes_.end(), "denseformer: block_idx ", block_idx,
                " without a pass: call init_accumulators(x) first, on the same thread (inside an "
                "activation checkpoint hand its result over as `accumulators`)");
    pass = found->second;
  }
  return forward(x, block_idx, pass);
}

at::Tensor DWAModulesImpl::forward(const at::Tensor& x, int64_t block_idx,
                                   const Accumulators& accumulators) {
  TORCH_CHECK(accumulators.defined(), "denseformer: accumulators is null");
  const auto current = c10::static_intrusive_pointer_cast<DepthPass>(accumulators);
  at::Tensor y = current->Next(x, block_idx);
  if (current->finished()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto pass = passes_.begin(); pass != passes_.end(); ++pass) {
      if (pass->second != accumulators) continue;
      passes_.erase(pass);
      break;
    }
  }
  return y;
}

}  // namespace denseformer::pytorch

// The operator denseformer::dwa and its registration with the dispatcher.
#include <ATen/Parallel.h>
#include <denseformer_torch/dwa.h>
#include <torch/library.h>

#include <algorithm>

#include "depth_pass.h"
#include "kernels/dwa/dwa_passes.h"

namespace denseformer::pytorch {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

void CheckSources(at::TensorList sources, const at::Tensor& alphas) {
  TORCH_CHECK(!sources.empty(), "denseformer::dwa: no sources");
  TORCH_CHECK(alphas.numel() == static_cast<int64_t>(sources.size()),
              "denseformer::dwa: ", alphas.numel(), " alphas for ", sources.size(), " sources");
  for (const at::Tensor& source : sources) {
    TORCH_CHECK(source.sizes() == sources[0].sizes() &&
                    source.scalar_type() == sources[0].scalar_type() &&
                    source.device() == sources[0].device(),
                "denseformer::dwa: sources of different shape, dtype or device");
  }
}

std::vector<at::Tensor> Contiguous(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.contiguous());
  return result;
}

at::Tensor PlainForward(at::TensorList sources, const at::Tensor& alphas) {
  CheckSources(sources, alphas);
  const at::Tensor weights = alphas.reshape(-1).to(sources[0].scalar_type());
  at::Tensor y = sources[0] * weights[0];
  for (size_t k = 1; k < sources.size(); ++k) y = y + sources[k] * weights[k];
  return y;
}

// Elements of a range of at::parallel_for, and of a part of the dot products.
constexpr int64_t kGrain = 16 * 1024;

at::Tensor CpuForward(at::TensorList sources, const at::Tensor& alphas) {
  CheckSources(sources, alphas);
  if (!Fusible(sources[0])) return PlainForward(sources, alphas);
  const std::vector<at::Tensor> x = Contiguous(sources);
  const at::Tensor weights = alphas.reshape(-1).to(at::kFloat).contiguous();
  std::vector<const void*> terms;
  std::vector<float> rows;
  for (size_t k = 0; k < x.size(); ++k) {
    const float weight = weights.data_ptr<float>()[k];
    if (weight == 0) continue;
    terms.push_back(x[k].data_ptr());
    rows.resize(terms.size() * kMostAverages);
    rows[(terms.size() - 1) * kMostAverages] = weight;
  }
  const at::Tensor y = at::empty(x[0].sizes(), x[0].options().dtype(at::kFloat));
  AveragePass pass;
  pass.sources = static_cast<int>(terms.size());
  pass.source = terms.data();
  pass.dtype = Matrix(x[0]).dtype();
  pass.weights = rows.data();
  const std::vector<uint8_t> skipped(terms.size(), 0);
  pass.skipped = skipped.data();
  pass.output[0] = y.data_ptr<float>();
  pass.empty = terms.empty();
  at::parallel_for(0, y.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { RunAveragePass(pass, begin, end); });
  return y.to(x[0].scalar_type());
}

using Gradients = std::tuple<std::vector<at::Tensor>, at::Tensor>;

Gradients PlainBackward(const at::Tensor& dy, at::TensorList sources, const at::Tensor& alphas) {
  const at::Tensor weights = alphas.reshape(-1).to(dy.scalar_type());
  std::vector<at::Tensor> dx, dots;
  for (size_t k = 0; k < sources.size(); ++k) {
    dx.push_back(dy * weights[k]);
    dots.push_back((dy * sources[k]).sum());
  }
  return {dx, at::stack(dots).to(alphas.scalar_type()).reshape(alphas.sizes())};
}

// Four sources at a time read dy once and give their gradients and dot products.
Gradients CpuBackward(const at::Tensor& grad, at::TensorList sources, const at::Tensor& alphas) {
  if (!Fusible(sources[0]) || sources[0].scalar_type() != at::kFloat) {
    return PlainBackward(grad, sources, alphas);
  }
  const at::Tensor dy = grad.contiguous();
  const std::vector<at::Tensor> x = Contiguous(sources);
  const at::Tensor weights = alphas.reshape(-1).to(at::kFloat).contiguous();
  const at::Tensor dalphas = at::empty({weights.numel()}, at::kFloat);
  std::vector<at::Tensor> dx;
  for (const at::Tensor& source : x) dx.push_back(at::empty_like(source));
  const int64_t count = dy.numel();
  const int64_t parts = std::clamp<int64_t>(count / kGrain, 1, 64);
  const void* gradient = dy.data_ptr();
  for (size_t first = 0; first < x.size(); first += kMostPulls) {
    PullPair pairs[kMostPulls];
    PullPass pass;
    pass.modules = 1;
    pass.dy = &gradient;
    pass.pairs = pairs;
    pass.targets = static_cast<int>(std::min<size_t>(kMostPulls, x.size() - first));
    for (int t = 0; t < pass.targets; ++t) {
      pairs[t] = {weights.data_ptr<float>()[first + t], true, true};
      pass.x[t] = x[first + t].data_ptr();
      pass.output[t] = dx[first + t].data_ptr<float>();
    }
    std::vector<double> dots(parts * kMostPulls);
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        RunPullPass(pass, count * part / parts, count * (part + 1) / parts,
                    dots.data() + part * kMostPulls);
      }
    });
    for (int t = 0; t < pass.targets; ++t) {
      double sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += dots[part * kMostPulls + t];
      dalphas.data_ptr<float>()[first + t] = static_cast<float>(sum);
    }
  }
  return {dx, dalphas.to(alphas.scalar_type()).reshape(alphas.sizes())};
}

// Shapes alone; they may be symbols, which cannot be compared here.
at::Tensor MetaForward(at::TensorList sources, const at::Tensor&) {
  TORCH_CHECK(!sources.empty(), "denseformer::dwa: no sources");
  return at::empty_like(sources[0], at::MemoryFormat::Contiguous);
}

Gradients MetaBackward(const at::Tensor&, at::TensorList sources, const at::Tensor& alphas) {
  std::vector<at::Tensor> dx;
  for (const at::Tensor& source : sources) {
    dx.push_back(at::empty_like(source, at::MemoryFormat::Contiguous));
  }
  return {dx, at::empty_like(alphas)};
}

Gradients Backward(const at::Tensor& dy, at::TensorList sources, const at::Tensor& alphas) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("denseformer::dwa_backward", "")
                             .typed<decltype(Backward)>();
  return op.call(dy, sources, alphas);
}

struct DwaFunction : public ::torch::autograd::Function<DwaFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList sources,
                            const at::Tensor& alphas) {
    at::AutoDispatchBelowADInplaceOrView guard;
    variable_list saved(sources.begin(), sources.end());
    saved.push_back(alphas);
    ctx->save_for_backward(saved);
    return Dwa(sources, alphas);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list saved = ctx->get_saved_variables();
    const at::Tensor alphas = saved.back();
    saved.pop_back();
    // With create_graph the gradients themselves need a graph, which plain operations have.
    auto [gradients, dalphas] = at::GradMode::is_enabled() ? PlainBackward(grads[0], saved, alphas)
                                                           : Backward(grads[0], saved, alphas);
    gradients.push_back(dalphas);
    return gradients;
  }
};

at::Tensor AutogradForward(at::TensorList sources, const at::Tensor& alphas) {
  return DwaFunction::apply(sources, alphas);
}

}  // namespace

at::Tensor Dwa(at::TensorList sources, const at::Tensor& alphas) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("denseformer::dwa", "").typed<decltype(Dwa)>();
  return op.call(sources, alphas);
}

TORCH_LIBRARY(denseformer, library) {
  library.def("dwa(Tensor[] sources, Tensor alphas) -> Tensor");
  library.def("dwa_backward(Tensor dy, Tensor[] sources, Tensor alphas) -> (Tensor[], Tensor)");
  library.def("pattern_sources(str spec, int n_blocks) -> int[][]",
              [](std::string spec, int64_t n_blocks) { return PatternSources(spec, n_blocks); });
  library.class_<DepthPass>("DepthPass")
      .def(::torch::init<Sources, at::Tensor, at::Tensor>())
      .def("next", &DepthPass::Next)
      .def("finished", &DepthPass::finished);
}

TORCH_LIBRARY_IMPL(denseformer, CompositeExplicitAutograd, library) {
  library.impl("dwa", PlainForward);
  library.impl("dwa_backward", PlainBackward);
}
TORCH_LIBRARY_IMPL(denseformer, CPU, library) {
  library.impl("dwa", CpuForward);
  library.impl("dwa_backward", CpuBackward);
}
TORCH_LIBRARY_IMPL(denseformer, Meta, library) {
  library.impl("dwa", MetaForward);
  library.impl("dwa_backward", MetaBackward);
}
TORCH_LIBRARY_IMPL(denseformer, Autograd, library) { library.impl("dwa", AutogradForward); }

}  // namespace denseformer::pytorch

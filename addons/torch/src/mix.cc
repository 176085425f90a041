// The operator denseformer::mix: sums of the same sources with weights of each row's own, in one
// pass over the sources for all of them.
//   y[c, t, :] = sum over k of weights[t, k, c] * sources[k][t, :]
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "depth_pass.h"
#include "kernels/dwa/mix_rows.h"

namespace denseformer::pytorch {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;
using MixGradients = std::tuple<std::vector<at::Tensor>, at::Tensor>;

constexpr int64_t kRows = 16;  // of a range of at::parallel_for

void CheckMix(at::TensorList sources, const at::Tensor& weights) {
  TORCH_CHECK(!sources.empty(), "denseformer::mix: no sources");
  const at::Tensor& first = sources[0];
  for (const at::Tensor& source : sources) {
    TORCH_CHECK(source.sizes() == first.sizes() && source.scalar_type() == first.scalar_type() &&
                    source.device() == first.device(),
                "denseformer::mix: sources of different shape, dtype or device");
  }
  TORCH_CHECK(
      first.dim() > 0 && weights.dim() == first.dim() + 1 &&
          weights.sizes().slice(0, first.dim() - 1) == first.sizes().slice(0, first.dim() - 1) &&
          weights.size(-2) == static_cast<int64_t>(sources.size()),
      "denseformer::mix: weights ", weights.sizes(), " for ", sources.size(), " sources ",
      first.sizes(), ", expected [..., sources, streams]");
}

// weights[..., k, c] as a factor of source k.
at::Tensor Factor(const at::Tensor& weights, size_t k, int64_t c) {
  return weights.select(-2, static_cast<int64_t>(k)).narrow(-1, c, 1);
}

at::Tensor PlainMix(at::TensorList sources, const at::Tensor& weights) {
  CheckMix(sources, weights);
  const at::Tensor typed = weights.to(sources[0].scalar_type());
  std::vector<at::Tensor> streams;
  for (int64_t c = 0; c < weights.size(-1); ++c) {
    at::Tensor y = sources[0] * Factor(typed, 0, c);
    for (size_t k = 1; k < sources.size(); ++k) y = y + sources[k] * Factor(typed, k, c);
    streams.push_back(y);
  }
  return at::stack(streams);
}

MixGradients PlainMixBackward(const at::Tensor& dy, at::TensorList sources,
                              const at::Tensor& weights) {
  const at::Tensor typed = weights.to(dy.scalar_type());
  std::vector<at::Tensor> dx, dweights;
  for (size_t k = 0; k < sources.size(); ++k) {
    at::Tensor sum = dy[0] * Factor(typed, k, 0);
    std::vector<at::Tensor> dots = {(dy[0] * sources[k]).sum(-1)};
    for (int64_t c = 1; c < weights.size(-1); ++c) {
      sum = sum + dy[c] * Factor(typed, k, c);
      dots.push_back((dy[c] * sources[k]).sum(-1));
    }
    dx.push_back(sum);
    dweights.push_back(at::stack(dots, -1));
  }
  return {dx, at::stack(dweights, -2).to(weights.scalar_type())};
}

bool FusibleMix(at::TensorList sources, const at::Tensor& weights) {
  const int64_t streams = weights.size(-1);
  return Fusible(sources[0]) && weights.device().is_cpu() &&
         (streams == 1 || streams == 2 || streams == 4);
}

// What the kernels read: contiguous sources, weights and the pointers to the rows of a token.
class MixOperands {
 public:
  MixOperands(at::TensorList sources, const at::Tensor& weights)
      : streams(weights.size(-1)),
        cols(sources[0].size(-1)),
        rows(sources[0].numel() / cols),
        weights_(weights.to(at::kFloat).contiguous()) {
    for (const at::Tensor& source : sources) {
      sources_.push_back(source.contiguous());
      matrices_.push_back(Matrix(sources_.back()));
    }
  }
  int count() const { return static_cast<int>(sources_.size()); }
  const float* weights(int64_t t) const {
    return weights_.data_ptr<float>() + t * count() * streams;
  }
  RowSources Rows(int64_t t, std::vector<const void*>& pointers) const {
    pointers.clear();
    for (const Tensor& matrix : matrices_) pointers.push_back(matrix.Rows(t, 1).raw());
    return {count(), pointers.data(), matrices_[0].dtype()};
  }

  const int64_t streams, cols, rows;

 private:
  at::Tensor weights_;
  std::vector<at::Tensor> sources_;
  std::vector<Tensor> matrices_;
};

at::Tensor CpuMix(at::TensorList sources, const at::Tensor& weights) {
  CheckMix(sources, weights);
  if (!FusibleMix(sources, weights)) return PlainMix(sources, weights);
  const MixOperands operands(sources, weights);
  std::vector<int64_t> shape = sources[0].sizes().vec();
  shape.insert(shape.begin(), operands.streams);
  const at::Tensor y =
      at::empty(shape, sources[0].options().dtype(at::kFloat), at::MemoryFormat::Contiguous);
  at::parallel_for(0, operands.rows, kRows, [&](int64_t begin, int64_t end) {
    std::vector<const void*> pointers;
    for (int64_t t = begin; t < end; ++t) {
      float* outputs[kMostStreams];
      for (int64_t c = 0; c < operands.streams; ++c) {
        outputs[c] = y.data_ptr<float>() + (c * operands.rows + t) * operands.cols;
      }
      RowMix mix;
      mix.sources = operands.Rows(t, pointers);
      mix.weights = operands.weights(t);
      mix.outputs = static_cast<int>(operands.streams);
      mix.output = outputs;
      MixRow(mix, operands.cols);
    }
  });
  return y.to(sources[0].scalar_type());
}

MixGradients CpuMixBackward(const at::Tensor& grad, at::TensorList sources,
                            const at::Tensor& weights) {
  if (!FusibleMix(sources, weights)) return PlainMixBackward(grad, sources, weights);
  const MixOperands operands(sources, weights);
  const at::Tensor dy = grad.to(at::kFloat).contiguous();
  const at::Tensor dweights =
      at::empty(weights.sizes(), weights.options().dtype(at::kFloat), at::MemoryFormat::Contiguous);
  std::vector<at::Tensor> dx;
  for (const at::Tensor& source : sources) {
    dx.push_back(at::empty(source.sizes(), source.options().dtype(at::kFloat),
                           at::MemoryFormat::Contiguous));
  }
  at::parallel_for(0, operands.rows, kRows, [&](int64_t begin, int64_t end) {
    std::vector<const void*> pointers;
    std::vector<float*> targets(sources.size());
    const std::vector<uint8_t> add(sources.size(), 0);
    for (int64_t t = begin; t < end; ++t) {
      const float* inputs[kMostStreams];
      for (int64_t c = 0; c < operands.streams; ++c) {
        inputs[c] = dy.data_ptr<float>() + (c * operands.rows + t) * operands.cols;
      }
      for (size_t k = 0; k < sources.size(); ++k) {
        targets[k] = dx[k].data_ptr<float>() + t * operands.cols;
      }
      RowPush push;
      push.sources = operands.Rows(t, pointers);
      push.inputs = static_cast<int>(operands.streams);
      push.input = inputs;
      push.weights = operands.weights(t);
      push.target = targets.data();
      push.add = add.data();
      RowDots(push.sources, operands.cols, push.inputs, inputs,
              dweights.data_ptr<float>() + t * operands.count() * operands.streams);
      PushRow(push, operands.cols);
    }
  });
  for (at::Tensor& gradient : dx) gradient = gradient.to(sources[0].scalar_type());
  return {dx, dweights.to(weights.scalar_type())};
}

// Shapes alone; they may be symbols, which cannot be compared here.
at::Tensor MetaMix(at::TensorList sources, const at::Tensor& weights) {
  TORCH_CHECK(!sources.empty(), "denseformer::mix: no sources");
  std::vector<at::Tensor> streams(static_cast<size_t>(weights.size(-1)), sources[0]);
  return at::stack(streams);
}

MixGradients MetaMixBackward(const at::Tensor&, at::TensorList sources, const at::Tensor& weights) {
  std::vector<at::Tensor> dx;
  for (const at::Tensor& source : sources) {
    dx.push_back(at::empty_like(source, at::MemoryFormat::Contiguous));
  }
  return {dx, at::empty_like(weights, at::MemoryFormat::Contiguous)};
}

at::Tensor Mix(at::TensorList sources, const at::Tensor& weights) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("denseformer::mix", "").typed<decltype(Mix)>();
  return op.call(sources, weights);
}

MixGradients MixBackward(const at::Tensor& dy, at::TensorList sources, const at::Tensor& weights) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("denseformer::mix_backward", "")
                             .typed<decltype(MixBackward)>();
  return op.call(dy, sources, weights);
}

struct MixFunction : public ::torch::autograd::Function<MixFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList sources,
                            const at::Tensor& weights) {
    at::AutoDispatchBelowADInplaceOrView guard;
    variable_list saved(sources.begin(), sources.end());
    saved.push_back(weights);
    ctx->save_for_backward(saved);
    return Mix(sources, weights);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list saved = ctx->get_saved_variables();
    const at::Tensor weights = saved.back();
    saved.pop_back();
    // With create_graph the gradients themselves need a graph, which plain operations have.
    auto [gradients, dweights] = at::GradMode::is_enabled()
                                     ? PlainMixBackward(grads[0], saved, weights)
                                     : MixBackward(grads[0], saved, weights);
    gradients.push_back(dweights);
    return gradients;
  }
};

at::Tensor AutogradMix(at::TensorList sources, const at::Tensor& weights) {
  return MixFunction::apply(sources, weights);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(denseformer, library) {
  library.def("mix(Tensor[] sources, Tensor weights) -> Tensor");
  library.def("mix_backward(Tensor dy, Tensor[] sources, Tensor weights) -> (Tensor[], Tensor)");
}
TORCH_LIBRARY_IMPL(denseformer, CompositeExplicitAutograd, library) {
  library.impl("mix", PlainMix);
  library.impl("mix_backward", PlainMixBackward);
}
TORCH_LIBRARY_IMPL(denseformer, CPU, library) {
  library.impl("mix", CpuMix);
  library.impl("mix_backward", CpuMixBackward);
}
TORCH_LIBRARY_IMPL(denseformer, Meta, library) {
  library.impl("mix", MetaMix);
  library.impl("mix_backward", MetaMixBackward);
}
TORCH_LIBRARY_IMPL(denseformer, Autograd, library) { library.impl("mix", AutogradMix); }

}  // namespace denseformer::pytorch

#include <denseformer_torch/dwa.h>
#include <gtest/gtest.h>

#include <thread>

namespace denseformer::pytorch {
namespace {

// A model of tanh blocks around DWAModules.
struct Model : ::torch::nn::Module {
  Model(int64_t n_blocks, const std::string& spec) : dwa(n_blocks, spec) {
    ::torch::manual_seed(0);
    register_module("dwa_modules", dwa);
    for (int64_t i = 0; i < n_blocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), ::torch::nn::Linear(6, 6)));
    }
    const at::NoGradGuard guard;
    for (at::Tensor& weight : dwa->parameters()) weight.copy_(at::randn(weight.sizes()));
  }

  at::Tensor Block(int64_t i, const at::Tensor& x) { return x + at::tanh(blocks[i]->forward(x)); }

  at::Tensor forward(at::Tensor x) {
    dwa->init_accumulators(x);
    for (size_t i = 0; i < blocks.size(); ++i) x = dwa->forward(Block(i, x), i);
    return x;
  }

  at::Tensor Formula(at::Tensor x, const std::vector<std::vector<int64_t>>& sources) {
    std::vector<at::Tensor> outputs = {x};
    for (size_t i = 0; i < blocks.size(); ++i) {
      x = Block(i, x);
      outputs.push_back(x);
      if (sources[i + 1].empty()) continue;
      at::Tensor y = at::zeros_like(x);
      for (size_t k = 0; k < sources[i + 1].size(); ++k) {
        y = y + dwa->weight(i)[0][k].to(x.dtype()) * outputs[sources[i + 1][k]];
      }
      x = y;
    }
    return x;
  }

  DWAModules dwa;
  std::vector<::torch::nn::Linear> blocks;
};

std::vector<at::Tensor> Gradients(Model& model, const at::Tensor& y) {
  model.zero_grad();
  y.to(at::kFloat).pow(2).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().clone());
  }
  return gradients;
}

void ExpectClose(const at::Tensor& got, const at::Tensor& want, double tolerance) {
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got - want).abs().max().item<double>(), tolerance * scale);
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(DWAModulesTest, ValuesAndGradientsFollowTheFormula) {
  for (const char* spec : {"1x1", "2x1", "4x5", "last:3", "final"}) {
    for (const auto& [dtype, tolerance] :
         {std::pair(at::kFloat, 1e-5), {at::kDouble, 1e-12}, {at::kBFloat16, 0.1}}) {
      SCOPED_TRACE(std::string(spec) + " " + at::toString(dtype));
      Model model(10, spec);
      if (dtype == at::kBFloat16) {
        const at::NoGradGuard guard;
        for (at::Tensor& weight : model.dwa->parameters()) weight /= weight.size(1);
      }
      model.to(dtype);
      const at::Tensor x = at::randn({3, 6}).to(dtype);
      const at::Tensor y = model.forward(x), z = model.Formula(x, PatternSources(spec, 10));
      ExpectClose(y, z, tolerance);
      const std::vector<at::Tensor> got = Gradients(model, y), want = Gradients(model, z);
      for (size_t p = 0; p < want.size(); ++p) ExpectClose(got[p], want[p], tolerance);
    }
  }
}

TEST(DWAModulesTest, NamesOfTheParameters) {
  DWAModules dwa(5, /*dilation=*/2, /*period=*/2);
  std::vector<std::string> names;
  for (const auto& item : dwa->named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"alphas.1.weight", "alphas.3.weight"}));
  EXPECT_EQ(dwa->weight(3).sizes(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(dwa->weight(3)[0][2].item<float>(), 1);
  EXPECT_FALSE(dwa->weight(0).defined());
}

TEST(DWAModulesTest, PassesInterleaveByNameAndByThread) {
  Model model(4, "1x1");
  const at::Tensor a = at::randn({2, 6}), b = at::randn({5, 6});
  const at::Tensor want_a = model.forward(a), want_b = model.forward(b);
  const Accumulators pass_a = model.dwa->init_accumulators(a);
  const Accumulators pass_b = model.dwa->init_accumulators(b);
  at::Tensor x = a, y = b;
  for (int64_t i = 0; i < 4; ++i) {
    x = model.dwa->forward(model.Block(i, x), i, pass_a);
    y = model.dwa->forward(model.Block(i, y), i, pass_b);
  }
  EXPECT_TRUE(at::equal(x, want_a));
  EXPECT_TRUE(at::equal(y, want_b));
  std::vector<std::thread> threads;
  std::vector<int> right(3);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; n < 20; ++n) right[t] += at::equal(model.forward(a), want_a);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(3, 20));
}

TEST(DWAModulesTest, SaysWhatIsWrongWithACall) {
  DWAModules dwa(3);
  const at::Tensor x = at::ones({2, 6});
  EXPECT_NE(MessageOf([&] { dwa->forward(x, 0); }).find("call init_accumulators(x) first"),
            std::string::npos);
  dwa->init_accumulators(x);
  EXPECT_EQ(MessageOf([&] { dwa->forward(x, 2); }),
            "denseformer: block_idx 2 out of order, expected 0");
  EXPECT_EQ(MessageOf([&] { dwa->forward(x, 3); }), "denseformer: block_idx 3, expected 0 to 2");
  EXPECT_EQ(MessageOf([&] { dwa->forward(at::ones({6}), 0); }),
            "denseformer: block_idx 0 gave Float [6] on cpu, but init_accumulators was given Float "
            "[2, 6] on cpu");
  EXPECT_EQ(MessageOf([&] { DWAModules(2, 1, 3); }),
            "denseformer: depth pattern '1x3': period P = 3 is larger than the depth 2, so there "
            "would be no module");
}

TEST(DWAModulesTest, OperatorTracesAndDifferentiates) {
  const std::vector<at::Tensor> sources = {at::randn({7, 40}).requires_grad_(),
                                           at::randn({7, 40}).requires_grad_()};
  const at::Tensor alphas = at::randn({2}).requires_grad_();
  Dwa(sources, alphas).sum().backward();
  ExpectClose(sources[1].grad(), alphas[1].detach().expand({7, 40}), 1e-6);
  ExpectClose(alphas.grad(), at::stack({sources[0].sum(), sources[1].sum()}).detach(), 1e-5);
  const std::vector<at::Tensor> meta(2, at::empty({3, 4}, at::device(at::kMeta)));
  EXPECT_EQ(Dwa(meta, at::empty({2}, at::device(at::kMeta))).sizes(), (std::vector<int64_t>{3, 4}));
}

}  // namespace
}  // namespace denseformer::pytorch

// A small GPT in libtorch turned into a DenseFormer: three changed lines, marked "step".
// Learns a short text by heart and prints the loss as it falls.
#include <denseformer_torch/dwa.h>
#include <torch/torch.h>

#include <cmath>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr int64_t kWidth = 32, kHeads = 4, kBlocks = 6, kLength = 48, kVocabulary = 128;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : ln_1(torch::nn::LayerNormOptions({kWidth})),
        ln_2(torch::nn::LayerNormOptions({kWidth})),
        qkv(kWidth, 3 * kWidth),
        proj(kWidth, kWidth),
        fc(kWidth, 4 * kWidth),
        mlp_proj(4 * kWidth, kWidth) {
    register_module("ln_1", ln_1);
    register_module("ln_2", ln_2);
    register_module("qkv", qkv);
    register_module("proj", proj);
    register_module("fc", fc);
    register_module("mlp_proj", mlp_proj);
  }

  torch::Tensor Attention(const torch::Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), size = kWidth / kHeads;
    const auto parts = qkv->forward(x).view({batch, length, 3, kHeads, size}).unbind(2);
    const auto q = parts[0].transpose(1, 2), k = parts[1].transpose(1, 2);
    auto scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(size));
    const auto future = torch::ones({length, length}, torch::kBool).triu(1);
    const auto mixed =
        scores.masked_fill(future, -INFINITY).softmax(-1).matmul(parts[2].transpose(1, 2));
    return proj->forward(mixed.transpose(1, 2).reshape({batch, length, kWidth}));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = x + Attention(ln_1->forward(x));
    return x + mlp_proj->forward(torch::gelu(fc->forward(ln_2->forward(x))));
  }

  torch::nn::LayerNorm ln_1, ln_2;
  torch::nn::Linear qkv, proj, fc, mlp_proj;
};
TORCH_MODULE(Block);

struct DenseFormer : torch::nn::Module {
  DenseFormer()
      : tokens(kVocabulary, kWidth),
        positions(kLength, kWidth),
        ln_f(torch::nn::LayerNormOptions({kWidth})),
        head(kWidth, kVocabulary),
        dwa(kBlocks, /*dilation=*/2, /*period=*/1) {  // step 1: construct
    register_module("tokens", tokens);
    register_module("positions", positions);
    for (int64_t i = 0; i < kBlocks; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    register_module("ln_f", ln_f);
    register_module("head", head);
    register_module("dwa_modules", dwa);
  }

  torch::Tensor forward(const torch::Tensor& ids) {
    auto x = tokens->forward(ids) + positions->forward(torch::arange(ids.size(1)));
    dwa->init_accumulators(x);  // step 2: hand over the embedding
    for (int64_t i = 0; i < kBlocks; ++i) {
      x = blocks[i]->as<BlockImpl>()->forward(x);
      x = dwa->forward(x, i);  // step 3: after each block
    }
    return head->forward(ln_f->forward(x));
  }

  torch::nn::Embedding tokens, positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm ln_f;
  torch::nn::Linear head;
  denseformer::pytorch::DWAModules dwa;
};

void Run() {
  torch::manual_seed(1);
  const std::string text = "what a block reads is an average of all that was.";
  std::vector<int64_t> ids(text.begin(), text.end());
  const auto all = torch::tensor(ids).unsqueeze(0);
  DenseFormer model;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(3e-3));
  const int64_t length = static_cast<int64_t>(ids.size()) - 1;
  for (int step = 0; step <= 40; ++step) {
    const auto logits = model.forward(all.slice(1, 0, length));
    const auto loss = torch::nn::functional::cross_entropy(logits.view({-1, kVocabulary}),
                                                           all.slice(1, 1).reshape(-1));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 10 == 0) std::cout << "step " << step << ": loss " << loss.item<float>() << "\n";
  }
  std::cout << "weights after the last block: " << model.dwa->weight(kBlocks - 1) << "\n";
}

}  // namespace

int main() {
  try {
    Run();
  } catch (const std::exception& error) {
    std::cerr << "gpt: " << error.what() << "\n";
    return 1;
  }
}

// What a user of the installed add-on writes.
#include <denseformer_torch/dwa.h>

int main() {
  denseformer::pytorch::DWAModules dwa(2);
  torch::Tensor x = torch::ones({2, 3});
  dwa->init_accumulators(x);
  for (int64_t i = 0; i < 2; ++i) x = dwa->forward(x + 1, i);
  return x.sum().item<float>() == 18 ? 0 : 1;
}

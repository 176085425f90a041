// dwa.h: depth-weighted averages for libtorch. A Transformer becomes a DenseFormer in three steps:
//
//   denseformer::pytorch::DWAModules dwa(n_blocks, /*dilation=*/4, /*period=*/5);       // step 1
//   dwa->init_accumulators(x);                                                         // step 2
//   for (int64_t i = 0; i < n_blocks; ++i) x = dwa->forward(blocks[i]->forward(x), i); // step 3
//
// Dense fp32 and bf16 tensors on the CPU run fused kernels, forward and backward, on the caller's
// own tensors (the history is not copied); any other device, dtype or layout takes plain tensor
// operations. Both follow autograd; the fused one can be differentiated once.
//
// Wrong calls (order, block index, a changed shape, dtype or device, a source modified in place)
// throw c10::Error that says what was expected.
#ifndef DENSEFORMER_TORCH_DWA_H_
#define DENSEFORMER_TORCH_DWA_H_

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define DENSEFORMER_TORCH_API __attribute__((visibility("default")))

namespace denseformer::pytorch {

// sum over k of alphas[k] * sources[k]: the operator denseformer::dwa(Tensor[] sources, Tensor
// alphas) -> Tensor of the dispatcher, with its own backward. Sources have one shape, dtype and
// device; alphas has as many elements as there are sources.
DENSEFORMER_TORCH_API at::Tensor Dwa(at::TensorList sources, const at::Tensor& alphas);

// The sources of each module, by depth 0..n_blocks: entry i for the module after block i,
// ascending, with i last; empty where there is none. spec: "4x5", "last:4", "final" or any other
// form of denseformer/depth_pattern.h.
DENSEFORMER_TORCH_API std::vector<std::vector<int64_t>> PatternSources(const std::string& spec,
                                                                       int64_t n_blocks);

// One pass through the depth: what init_accumulators returns. Needed by name only where several
// passes are under way on one thread, or inside an activation checkpoint.
using Accumulators = c10::intrusive_ptr<::torch::CustomClassHolder>;

class DENSEFORMER_TORCH_API DWAModulesImpl : public ::torch::nn::Module {
 public:
  // The KxP pattern of the paper: a module after every `period`-th block, which reads every
  // `dilation`-th output.
  explicit DWAModulesImpl(int64_t n_blocks, int64_t dilation = 1, int64_t period = 1);
  // Any pattern by its spec (PatternSources).
  DWAModulesImpl(int64_t n_blocks, const std::string& spec);
  ~DWAModulesImpl() override;

  // Weights 1 for the newest source and 0 for the others.
  void reset_parameters();

  // Begins a pass with the embedding. The pass ends with the last block; until then it belongs to
  // the calling thread.
  Accumulators init_accumulators(const at::Tensor& x);

  // What block block_idx + 1 reads, from the output x of block block_idx (from 0).
  at::Tensor forward(const at::Tensor& x, int64_t block_idx);
  at::Tensor forward(const at::Tensor& x, int64_t block_idx, const Accumulators& accumulators);

  int64_t n_blocks() const { return static_cast<int64_t>(sources_.size()) - 1; }
  // The weights after block block_idx, [1, n]; undefined where there is no module.
  at::Tensor weight(int64_t block_idx) const;

 private:
  std::vector<std::vector<int64_t>> sources_;
  ::torch::nn::ModuleDict alphas_;  // "0", "1", ...: each with its parameter "weight"
  std::mutex mutex_;
  std::map<std::thread::id, Accumulators> passes_;
};
TORCH_MODULE(DWAModules);

}  // namespace denseformer::pytorch

#endif  // DENSEFORMER_TORCH_DWA_H_

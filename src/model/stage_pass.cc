#include "model/stage_pass.h"

#include <algorithm>

#include "model/head.h"

namespace denseformer {
namespace {

// sum(i) += alpha_ij X_j for the sources j that are `added` (ascending, all of them sources of
// module i); from nothing where `fresh`.
void AddToSum(const DepthPattern& pattern, int i, const std::vector<int>& added, bool fresh,
              Activations& a) {
  const std::vector<int>& sources = pattern.sources(i);
  for (size_t at = 0; at < added.size();) {
    // A run of neighbors among the sources of the module is one pass.
    auto source = std::lower_bound(sources.begin(), sources.end(), added[at]);
    const int begin = *source;
    int end = begin;
    for (; at < added.size() && source != sources.end() && *source == added[at]; ++at, ++source) {
      end = *source + 1;
    }
    a.averager().ExportForward(i, begin, end, a.history(), fresh ? Tensor() : a.sum(i), a.sum(i));
    fresh = false;
  }
}

// The sources below `bound` that the stage adds to the average of module i.
std::vector<int> AddedBelow(const Model& model, int i, int bound) {
  std::vector<int> added;
  for (const int j : model.pattern().sources(i)) {
    if (j < bound && model.stage().Adds(model.pattern(), i, j)) added.push_back(j);
  }
  return added;
}

// Averages of the stage that start from a partial sum. It covers the sources up to its newest one:
// older ones that came by themselves are added first.
void ImportSums(const Model& model, Activations& a) {
  const Stage& stage = model.stage();
  for (const PartialSum& sum : stage.in.sums) {
    if (!stage.blocks.contains(sum.module)) continue;
    const int end = sum.sources.back() + 1;
    AddToSum(model.pattern(), sum.module, AddedBelow(model, sum.module, end), /*fresh=*/false, a);
    a.averager().ImportForward(sum.module, end, a.sum(sum.module));
  }
}

void ExportSums(const Model& model, Activations& a) {
  const Stage& stage = model.stage();
  for (const PartialSum& sum : stage.out.sums) {
    AddToSum(model.pattern(), sum.module, AddedBelow(model, sum.module, stage.out.block + 1),
             FindSum(stage.in, sum.module) == nullptr, a);
  }
}

bool Crosses(const Cut& cut, int j) {
  return std::binary_search(cut.sources.begin(), cut.sources.end(), j);
}

// dX_j of what came through the first cut of the stage.
void SourcesBackward(const Model& model, Activations& a) {
  const Stage& stage = model.stage();
  const int cut = stage.in.block;
  // Where the stream is a source, dx has its gradient as the stream.
  if (stage.Holds(model.pattern(), cut) && !Crosses(stage.in, cut)) {
    a.averager().Backward(cut, a.history(), a.dy_of(cut), a.alphas, a.dalphas, a.dx);
  }
  for (const int j : stage.in.sources) {
    a.averager().ExportBackward(j, 0, model.config().n_layer + 1, a.history(), a.dy_of(j), a.alphas,
                                a.dalphas, Crosses(stage.out, j) ? a.dsource(j) : Tensor(),
                                a.dsource(j));
  }
}

}  // namespace

void ForwardTensors(const Model& model, CutSide side, Activations& a,
                    std::vector<Tensor>& tensors) {
  tensors.clear();
  const Stage& stage = model.stage();
  if (side == CutSide::kIn ? stage.first() : stage.last()) return;
  const Cut& cut = side == CutSide::kIn ? stage.in : stage.out;
  tensors.push_back(a.y(cut.block));
  for (const int j : cut.sources) tensors.push_back(a.history(j));
  for (const PartialSum& sum : cut.sums) tensors.push_back(a.sum(sum.module));
}

void BackwardTensors(const Model& model, CutSide side, Activations& a,
                     std::vector<Tensor>& tensors) {
  tensors.clear();
  const Stage& stage = model.stage();
  if (side == CutSide::kIn ? stage.first() : stage.last()) return;
  const Cut& cut = side == CutSide::kIn ? stage.in : stage.out;
  tensors.push_back(DyPlace(model, cut.block, a));
  for (const int j : cut.sources) tensors.push_back(a.dsource(j));
  for (const PartialSum& sum : cut.sums) {
    // dY of a module of this stage, or as it came back.
    tensors.push_back(stage.blocks.contains(sum.module) ? a.dy()[sum.module] : a.sum(sum.module));
  }
}

void StageForward(const Model& model, std::span<const int32_t> tokens,
                  const DropoutOptions& dropout, Activations& a, const BlockDone& block_done) {
  if (model.stage().first()) {
    InputForward(model, tokens, dropout, a, {});
  } else {
    StreamForward(model, a);
  }
  ImportSums(model, a);
  for (int i = model.stage().blocks.first; i <= model.stage().blocks.last; ++i) {
    BlocksForward(model, {i, i}, dropout, a);
    if (block_done) block_done(i);
  }
  ExportSums(model, a);
}

void StageBackward(const Model& model, std::span<const int32_t> tokens,
                   const DropoutOptions& dropout, Gradients gradients, Activations& a,
                   const BlockDone& block_done) {
  const Stage& stage = model.stage();
  if (stage.last()) HeadNormBackward(model, a);
  for (const int j : stage.out.sources) {
    // Gradients of what came from before the stage continue in SourcesBackward.
    if (!Crosses(stage.in, j)) a.averager().ImportBackward(j, stage.out.block + 1, a.dsource(j));
  }
  BlocksBackward(model, stage.blocks, dropout, gradients, a, block_done);
  if (stage.first()) {
    InputBackward(model, tokens, dropout, gradients, a);
  } else {
    SourcesBackward(model, a);
  }
}

}  // namespace denseformer

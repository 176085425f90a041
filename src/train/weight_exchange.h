// How updated weights come from the ranks that own them to all.
//
// In fp32 compute the GEMMs read the masters (or copies packed from them), so all ranks have all
// masters, and those travel. In bf16 compute a rank needs the packed bf16 copies of the blocks'
// matrices, but of their fp32 masters only its own shard: the matrices travel in bf16, half the
// bytes, and the memory of the other ranks' masters is given back to the system while nothing reads
// it. A master that was rounded to bf16 and is packed again gives the same bits, so all ranks have
// the same packed copies. What kernels read in fp32 stays whole: the embedding, norms, biases,
// gains, and the weights of the averages.
#ifndef DENSEFORMER_TRAIN_WEIGHT_EXCHANGE_H_
#define DENSEFORMER_TRAIN_WEIGHT_EXCHANGE_H_

#include <memory>
#include <vector>

#include "dist/collectives.h"
#include "model/model.h"
#include "tensor/storage.h"
#include "train/gradient_buckets.h"

namespace denseformer {

class WeightExchange {
 public:
  // Each rank owns its ShardRange of every bucket. The communicator must outlive it.
  WeightExchange(Communicator& group, const Model& model,
                 const std::vector<GradientBucket>& buckets);

  // After an update of the owned weights: all ranks have all that a pass reads.
  void Gather(Model& model);
  // Seconds of all calls of Gather in which this rank only waited.
  double waited() const { return waited_; }

  // The masters of all to the group's rank 0, for a checkpoint; Release gives the memory back.
  void GatherMasters(Model& model);
  void Release(Model& model);
  // Before weights are set for the first time: gradients are not there together with the masters of
  // all, so that the memory of a rank never exceeds that of a step.
  void ReleaseUntilFirstStep(Model& model);

 private:
  // Neighboring buckets whose matrices are packed together.
  struct Part {
    Range range;
    std::vector<Range> buckets;
    bool half;                 // travels in bf16
    std::vector<Range> given;  // of bf16: the other ranks' pieces of matrices
  };
  // A part in bf16 on its way.
  struct Transfer {
    Storage values;  // of the whole part
    std::vector<std::unique_ptr<Message>> messages;
  };

  void Plan(const ParameterTable& table, Part& part);
  void Wait(std::vector<std::unique_ptr<Message>>& messages);
  void Start(Model& model, const Part& part, Transfer& transfer);
  void Finish(Model& model, const Part& part, Transfer& transfer);
  void GatherVectors(Model& model);
  void ReleasePart(Model& model, const Part& part);

  Communicator& group_;
  std::vector<Part> parts_;
  std::vector<std::vector<Range>> vectors_;  // by rank: what it owns in fp32 within bf16 parts
  Transfer transfers_[2];
  std::vector<float> vector_values_;  // of all ranks, in their order
  double waited_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_WEIGHT_EXCHANGE_H_

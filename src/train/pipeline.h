// Pipeline parallel training: each process holds a stage (model/stage.h) and sends what crosses its
// cuts to its neighbors. The passes of a step (train.accumulate) are the micro-batches, in the
// order of pipeline_schedule.h.
//
// Messages are one per tensor (model/stage_pass.h), forward and backward, and nothing else goes
// through a cut during the passes: their bytes are those of the plan. After the passes the
// gradients of shared parameters are summed over the stages that have them, in the order of the
// stages.
#ifndef DENSEFORMER_TRAIN_PIPELINE_H_
#define DENSEFORMER_TRAIN_PIPELINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "dist/communicator.h"
#include "model/stage_pass.h"

namespace denseformer {

// A micro-batch; its views must stay valid until the next one is asked for.
struct PipelinePass {
  Batch batch;
  DropoutOptions dropout;
  float scale = 1;  // of the loss
};

class Pipeline {
 public:
  // Rank s of `stages` holds stage s; model.stage() is that of this rank. Both must outlive it.
  // Memory for micro-batches of up to max_sequences * max_length tokens, of which up to
  // `micro_batches` (PipelineSlots) are under way.
  Pipeline(const Model& model, Communicator& stages, int micro_batches, int64_t max_sequences,
           int64_t max_length, bool recompute);

  // The gradient of the sum over the micro-batches of scale * (mean loss) replaces
  // model.gradients(). Returns that sum on the last stage, 0 elsewhere. `pass` is asked twice for
  // each micro-batch, before its forward and before its backward pass. `block_done` as for
  // BlocksBackward, in the last micro-batch.
  double ForwardBackward(int micro_batches, FunctionRef<PipelinePass(int micro_batch)> pass,
                         const BlockDone& block_done = {});

  // Losses [N] and correct predictions [N] of a batch, on the last stage; the others return once
  // their part is on its way.
  void ForwardLoss(const Batch& batch, std::span<float> losses, std::span<uint8_t> correct);

  // Gradients of the parameters that several stages have become their sums.
  void SumSharedGradients();

  // The embedding of the first stage to the last: another host's math library may round
  // differently.
  void SendEmbedding(Model& model);

  int64_t max_rows() const { return slots_[0].activations.max_rows(); }
  // Of all micro-batches under way.
  size_t bytes() const;
  Communicator& stages() { return stages_; }
  const Model& model() const { return model_; }
  // Of the last backward pass (gradient_norm.h).
  double matrix_squares() const { return matrix_squares_; }
  Activations& newest() { return slots_[newest_].activations; }
  // Seconds in which the rank waited for its neighbors, since the start.
  double waited() const { return waited_; }

 private:
  // The memory of a micro-batch under way, and its messages that have not been seen to arrive.
  struct Slot {
    explicit Slot(Activations a) : activations(std::move(a)) {}
    Activations activations;
    std::vector<std::unique_ptr<Message>> sent;
  };

  Slot& SlotOf(int64_t micro_batch);
  void Forward(Slot& slot, const PipelinePass& pass);
  double Backward(Slot& slot, const PipelinePass& pass, Gradients gradients,
                  const BlockDone& block_done);
  void Receive(int from, MessageTag tag);
  void Send(int to, MessageTag tag, Slot& slot);
  void Finish(Slot& slot);
  // Moves all messages on.
  void Poll();
  void SumEmbedding(const Tensor& gradient);

  const Model& model_;
  Communicator& stages_;
  std::deque<Slot> slots_;
  size_t newest_ = 0;
  int64_t evaluated_ = 0;  // batches of ForwardLoss
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<Message>> receives_;
  std::vector<float> other_, all_;  // gradients of other stages
  double matrix_squares_ = 0, waited_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_PIPELINE_H_

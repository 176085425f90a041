#include "train/pipeline.h"

#include <algorithm>
#include <chrono>

#include "dist/collectives.h"
#include "model/head.h"
#include "train/pipeline_schedule.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

std::span<std::byte> BytesOf(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw()), tensor.bytes()};
}

}  // namespace

Pipeline::Pipeline(const Model& model, Communicator& stages, int micro_batches,
                   int64_t max_sequences, int64_t max_length, bool recompute)
    : model_(model), stages_(stages) {
  const Stage& stage = model.stage();
  DF_CHECK(stage.index == stages.rank() && stage.count == stages.size());
  const int slots = PipelineSlots(stage.index, stage.count, micro_batches);
  for (int slot = 0; slot < slots; ++slot) {
    slots_.emplace_back(
        Activations(model, max_sequences, max_length, ModelUse::kTraining, recompute));
  }
}

size_t Pipeline::bytes() const {
  size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.activations.bytes();
  return sum;
}

Pipeline::Slot& Pipeline::SlotOf(int64_t micro_batch) {
  newest_ = static_cast<size_t>(micro_batch) % slots_.size();
  return slots_[newest_];
}

double Pipeline::ForwardBackward(int micro_batches, FunctionRef<PipelinePass(int)> pass,
                                 const BlockDone& block_done) {
  const Stage& stage = model_.stage();
  double loss = 0;
  for (const PipelineAction& action : PipelineActions(stage.index, stage.count, micro_batches)) {
    const int m = action.micro_batch;
    Slot& slot = SlotOf(m);
    if (action.forward) {
      Forward(slot, pass(m));
    } else {
      loss += Backward(slot, pass(m), m == 0 ? Gradients::kReplace : Gradients::kAdd,
                       m + 1 == micro_batches ? block_done : BlockDone());
    }
  }
  for (Slot& slot : slots_) Finish(slot);
  return loss;
}

void Pipeline::ForwardLoss(const Batch& batch, std::span<float> losses,
                           std::span<uint8_t> correct) {
  Slot& slot = SlotOf(evaluated_++);
  Forward(slot, {batch, DropoutOptions(), 1});
  if (model_.stage().last()) {
    HeadForward(model_, slot.activations, batch.targets, losses, correct);
  }
}

void Pipeline::Forward(Slot& slot, const PipelinePass& pass) {
  Activations& a = slot.activations;
  CheckBatch(model_, pass.batch);
  Finish(slot);
  a.SetShape(pass.batch.sequences, pass.batch.length);
  ForwardTensors(model_, CutSide::kIn, a, tensors_);
  Receive(stages_.rank() - 1, MessageTag::kForward);
  StageForward(model_, pass.batch.tokens, pass.dropout, a, [this](int) { Poll(); });
  ForwardTensors(model_, CutSide::kOut, a, tensors_);
  Send(stages_.rank() + 1, MessageTag::kForward, slot);
}

double Pipeline::Backward(Slot& slot, const PipelinePass& pass, Gradients gradients,
                          const BlockDone& block_done) {
  Activations& a = slot.activations;
  // What comes back takes the place of what was sent.
  Finish(slot);
  StartBackward(model_, gradients, a);
  double loss = 0;
  if (model_.stage().last()) {
    loss = HeadLossBackward(model_, pass.batch, pass.scale, gradients, a) * pass.scale;
  } else {
    BackwardTensors(model_, CutSide::kOut, a, tensors_);
    Receive(stages_.rank() + 1, MessageTag::kBackward);
  }
  StageBackward(model_, pass.batch.tokens, pass.dropout, gradients, a, [&](int block) {
    if (block_done) block_done(block);
    Poll();
  });
  matrix_squares_ = a.matrix_squares;
  BackwardTensors(model_, CutSide::kIn, a, tensors_);
  Send(stages_.rank() - 1, MessageTag::kBackward, slot);
  return loss;
}

void Pipeline::Receive(int from, MessageTag tag) {
  const Clock::time_point begin = Clock::now();
  for (const Tensor& tensor : tensors_) {
    receives_.push_back(stages_.StartReceive(from, tag, BytesOf(tensor)));
  }
  for (const std::unique_ptr<Message>& message : receives_) message->Wait();
  receives_.clear();
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

void Pipeline::Send(int to, MessageTag tag, Slot& slot) {
  for (const Tensor& tensor : tensors_) {
    slot.sent.push_back(stages_.StartSend(to, tag, BytesOf(tensor)));
  }
}

void Pipeline::Finish(Slot& slot) {
  const Clock::time_point begin = Clock::now();
  for (const std::unique_ptr<Message>& message : slot.sent) message->Wait();
  slot.sent.clear();
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

void Pipeline::Poll() {
  for (Slot& slot : slots_) {
    while (!slot.sent.empty() && slot.sent.back()->Done()) slot.sent.pop_back();
  }
}

void Pipeline::SumEmbedding(const Tensor& gradient) {
  const Stage& stage = model_.stage();
  const int other = stage.first() ? stage.count - 1 : 0;
  const std::span<float> mine(gradient.f32(), static_cast<size_t>(gradient.count()));
  other_.resize(mine.size());
  const auto receive = stages_.StartReceive(other, MessageTag::kGradients,
                                            std::as_writable_bytes(std::span(other_)));
  const auto send = stages_.StartSend(other, MessageTag::kGradients, std::as_bytes(mine));
  receive->Wait();
  send->Wait();
  // The sum of two numbers does not depend on their order.
  for (size_t e = 0; e < mine.size(); ++e) mine[e] += other_[e];
}

void Pipeline::SendEmbedding(Model& model) {
  const Stage& stage = model_.stage();
  const Tensor& wte = model.tensors().wte;
  if (stage.first()) stages_.Send(stage.count - 1, MessageTag::kWeights, BytesOf(wte));
  if (!stage.last()) return;
  stages_.Receive(0, MessageTag::kWeights, BytesOf(wte));
  model.WeightsChanged();
}

void Pipeline::SumSharedGradients() {
  const Stage& stage = model_.stage();
  const Clock::time_point begin = Clock::now();
  if (stage.first() || stage.last()) SumEmbedding(model_.gradient_tensors().wte);
  std::vector<float> mine;  // the weights of all averages
  for (const Tensor& alphas : model_.gradient_tensors().alphas) {
    if (!alphas.empty()) mine.insert(mine.end(), alphas.f32(), alphas.f32() + alphas.count());
  }
  if (!mine.empty()) {
    all_.resize(mine.size() * static_cast<size_t>(stage.count));
    ExchangeBytes(stages_, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all_)));
  }
  size_t at = 0;
  for (const Tensor& alphas : model_.gradient_tensors().alphas) {
    for (int64_t e = 0; !alphas.empty() && e < alphas.count(); ++e, ++at) {
      float sum = 0;
      for (int s = 0; s < stage.count; ++s) sum += all_[static_cast<size_t>(s) * mine.size() + at];
      alphas.f32()[e] = sum;
    }
  }
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace denseformer

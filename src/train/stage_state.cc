#include "train/stage_state.h"

#include <algorithm>

#include "base/error.h"

namespace denseformer {
namespace {

DepthPattern PatternOf(const ModelConfig& config) {
  return DepthPattern::Parse(config.dwa, config.n_layer);
}

}  // namespace

WholeState::WholeState(const ModelConfig& config, bool here)
    : moments(here ? static_cast<size_t>(ParameterTable(config, PatternOf(config)).buffer_size())
                   : 0) {
  if (here) model.emplace(config, DType::kF32, ModelUse::kInference);
}

StageState::StageState(Communicator& stages, const ModelConfig& config,
                       const std::vector<Stage>& plan)
    : stages_(stages), whole_(config, PatternOf(config)) {
  DF_CHECK(static_cast<int>(plan.size()) == stages.size());
  for (const Stage& stage : plan) tables_.emplace_back(config, PatternOf(config), stage);
}

void StageState::Gather(std::span<const float> mine, std::span<float> whole) {
  if (!stages_.first()) return stages_.Send(0, MessageTag::kState, std::as_bytes(mine));
  std::vector<float> buffer;
  // From the last stage to the first, whose values of shared parameters stay.
  for (int s = stages_.size() - 1; s >= 0; --s) {
    const ParameterTable& table = tables_[static_cast<size_t>(s)];
    buffer.resize(static_cast<size_t>(table.buffer_size()));
    if (s == 0) {
      std::copy(mine.begin(), mine.end(), buffer.begin());
    } else {
      stages_.Receive(s, MessageTag::kState, std::as_writable_bytes(std::span(buffer)));
    }
    for (const Parameter& p : table.all()) {
      std::copy_n(buffer.begin() + p.offset, p.count(),
                  whole.begin() + whole_.Find(p.name)->offset);
    }
  }
}

void StageState::Scatter(std::span<const float> whole, std::span<float> mine) {
  if (!stages_.first()) {
    return stages_.Receive(0, MessageTag::kState, std::as_writable_bytes(mine));
  }
  std::vector<float> buffer;
  for (int s = stages_.size() - 1; s >= 0; --s) {
    const ParameterTable& table = tables_[static_cast<size_t>(s)];
    buffer.assign(static_cast<size_t>(table.buffer_size()), 0.0f);
    for (const Parameter& p : table.all()) {
      std::copy_n(whole.begin() + whole_.Find(p.name)->offset, p.count(),
                  buffer.begin() + p.offset);
    }
    if (s == 0) {
      std::copy(buffer.begin(), buffer.end(), mine.begin());
    } else {
      stages_.Send(s, MessageTag::kState, std::as_bytes(std::span(buffer)));
    }
  }
}

}  // namespace denseformer

// Depth mixers: with which weights does a module read its sources, and which parts of the next
// block get an average of their own? depth_pattern.h answers which sources. docs/mixers.md has
// formulas, costs and advice.
//
// A sink s = (depth i, stream c) is Y_s(t) = sum over j in S_i of a_sj(t) X_j(t) for token t.
#ifndef DENSEFORMER_MODEL_MIXER_SPEC_H_
#define DENSEFORMER_MODEL_MIXER_SPEC_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "denseformer/config.h"

namespace denseformer {

enum class MixerKind { kStatic, kDynamic, kAttention, kAttnRes };

// One row per mixer; parsing, help, messages and `info` read the table.
struct MixerForm {
  std::string_view name;
  MixerKind kind;
  bool identity;    // at the initial weights the model equals the plain Transformer, bit for bit
  bool increments;  // sources are V_j = X_j - Y_{j-1}, what block j added, instead of X_j
  std::string_view weights;  // in words
};
std::span<const MixerForm> MixerForms();

enum class Stream { kResidual, kQuery, kKey, kValue };

struct MixerSpec {
  const MixerForm* form = nullptr;
  std::vector<Stream> streams;  // the residual stream first
  bool prepost = false;         // sources are normalized, and so is their sum

  MixerKind kind() const { return form->kind; }
  // One scalar per source: the averages of DenseFormer.
  bool plain() const { return kind() == MixerKind::kStatic && streams.size() == 1; }
  // Streams of the module after block i of d: after the last block there is no attention to feed.
  int stream_count(int i, int d) const { return i == d ? 1 : static_cast<int>(streams.size()); }
};

// Throws Error (kUsage) that names the field of the configuration and what would be right.
MixerSpec ParseMixer(const ModelConfig& config);

// "static, dynamic, attention or attnres", "r, rv or rqkv", "none or prepost".
std::string MixerNames();
std::string StreamNames();
std::string MixerNormNames();

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_MIXER_SPEC_H_

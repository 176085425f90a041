#include "denseformer/config.h"

#include <iterator>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "denseformer/depth_pattern.h"
#include "model/config_fields.h"
#include "model/mixer_spec.h"

namespace denseformer {
namespace {

struct PresetRow {
  const char* name;
  int n_layer, n_head, n_embd, vocab_size, seq_len;
};

constexpr PresetRow kPresets[] = {
    {"paper-48", 48, 12, 768, 50304, 256},  //
    {"paper-64", 64, 12, 768, 50304, 256},  //
    {"paper-72", 72, 12, 768, 50304, 256},  //
    {"paper-84", 84, 12, 768, 50304, 256},  //
    {"paper-90", 90, 12, 768, 50304, 256},  //
    {"small", 48, 4, 128, 4096, 256},       // an hour on 2 cores, as deep as the paper's
    {"tiny", 24, 3, 96, 2048, 128},         // the quickstart: minutes
    {"micro", 48, 2, 32, 257, 32},          // bytes, for wide grids: seconds
    {"test", 4, 2, 32, 512, 32},            // milliseconds
};

void CheckRange(const char* name, int value, int low, int high) {
  if (value < low || value > high) {
    Throw(ErrorCode::kUsage, "model.{}: got {}, expected {} to {}", name, value, low, high);
  }
}

}  // namespace

void ModelConfig::Validate() const {
  CheckRange("n_layer", n_layer, 1, 4096);
  CheckRange("n_head", n_head, 1, 1024);
  CheckRange("n_embd", n_embd, 1, 1 << 17);
  CheckRange("vocab_size", vocab_size, 1, 1 << 24);
  CheckRange("seq_len", seq_len, 1, 1 << 20);
  if (n_embd % n_head != 0) {
    Throw(ErrorCode::kUsage, "model.n_head: got {}, expected a divisor of n_embd = {}", n_head,
          n_embd);
  }
  if (head_size() % 2 != 0) {
    Throw(ErrorCode::kUsage,
          "model.n_head: n_embd / n_head = {} / {} = {} is odd; rotary embeddings rotate pairs, so "
          "it "
          "must be even",
          n_embd, n_head, head_size());
  }
  DepthPattern::Parse(dwa, n_layer);
  ParseMixer(*this);
}

ModelConfig ModelConfig::Preset(std::string_view name) {
  for (const PresetRow& row : kPresets) {
    if (name != row.name) continue;
    ModelConfig config;
    config.n_layer = row.n_layer;
    config.n_head = row.n_head;
    config.n_embd = row.n_embd;
    config.vocab_size = row.vocab_size;
    config.seq_len = row.seq_len;
    return config;
  }
  Throw(ErrorCode::kUsage, "preset: got '{}', expected one of {}{}", Printable(name),
        Join(PresetNames(), ", "), DidYouMean(name, PresetNames()));
}

std::vector<std::string> ModelConfig::PresetNames() {
  std::vector<std::string> names;
  for (const PresetRow& row : kPresets) names.emplace_back(row.name);
  return names;
}

}  // namespace denseformer

// The fields of ModelConfig, listed once: configuration files, --set, config.json and the printed
// configuration all go through this list.
#ifndef DENSEFORMER_MODEL_CONFIG_FIELDS_H_
#define DENSEFORMER_MODEL_CONFIG_FIELDS_H_

#include <string_view>

#include "denseformer/config.h"

namespace denseformer {

// Fields that files written before they existed lack; their defaults are what such files mean.
inline bool MayBeMissing(std::string_view field) {
  return field == "mixer" || field == "streams" || field == "mixer_norm";
}

// Calls visit(name, field, help) for each field; `config` may be const. Fields are int, bool or
// std::string.
template <class Config, class Visitor>
void VisitFields(Config& config, Visitor&& visit) {
  visit("n_layer", config.n_layer, "blocks");
  visit("n_head", config.n_head, "attention heads");
  visit("n_embd", config.n_embd, "width");
  visit("vocab_size", config.vocab_size, "rows of the token embedding");
  visit("seq_len", config.seq_len, "longest sequence in tokens");
  visit("bias", config.bias, "biases in LayerNorm and linear layers");
  visit("gains", config.gains, "learned gains on the residual connections");
  visit("dwa", config.dwa, "depth pattern (depth_pattern.h)");
  visit("mixer", config.mixer, "weights of the modules: static, dynamic, attention or attnres");
  visit("streams", config.streams,
        "parts of a block with an average of their own: r (residual), rv or rqkv");
  visit("mixer_norm", config.mixer_norm,
        "none, or prepost: normalize the sources and the sum of a dynamic mixer");
}

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_CONFIG_FIELDS_H_

// config.h: what a model is. Everything that decides its parameters and its function.
#ifndef DENSEFORMER_CONFIG_H_
#define DENSEFORMER_CONFIG_H_

#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

struct ModelConfig {
  int n_layer = 48;          // blocks d
  int n_head = 12;           // heads H; must divide n_embd
  int n_embd = 768;          // width D; D / H must be even (rotary pairs)
  int vocab_size = 50304;    // rows of the embedding V
  int seq_len = 256;         // longest sequence T
  bool bias = false;         // biases in LayerNorm and linear layers
  bool gains = false;        // learned gains on both residual connections of a block
  std::string dwa = "none";  // depth pattern: see depth_pattern.h
  // Weights of the modules and what reads them: see docs/mixers.md.
  std::string mixer = "static";     // static, dynamic, attention, attnres
  std::string streams = "r";        // r, rv, rqkv
  std::string mixer_norm = "none";  // none, prepost (of dynamic)

  int head_size() const { return n_embd / n_head; }
  bool operator==(const ModelConfig&) const = default;

  // Throws Error (kUsage) that names the field, its value and what would be right.
  void Validate() const;

  // A preset by name: paper-48, paper-64, paper-72, paper-84, paper-90, small, tiny, micro, test.
  // Throws Error (kUsage) with the nearest name.
  static ModelConfig Preset(std::string_view name);
  static std::vector<std::string> PresetNames();
};

}  // namespace denseformer

#endif  // DENSEFORMER_CONFIG_H_

// model.h: start here. A trained model, loaded from a run directory.
//
//   auto model = denseformer::LanguageModel::Load("runs/tiny");
//   std::vector<int32_t> tokens = model.tokenizer().Encode("In the beginning");
//   std::vector<float> logits = model.Logits(tokens);    // [tokens, vocabulary]
//
// Text from a model: generator.h. Tokens alone: tokenizer.h. The depth-weighted average alone:
// dwa.h. Which outputs a depth reads: depth_pattern.h. What a model is: config.h. Failures:
// error.h.
#ifndef DENSEFORMER_MODEL_H_
#define DENSEFORMER_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "denseformer/config.h"
#include "denseformer/tokenizer.h"

namespace denseformer {

enum class Precision {
  kAuto,  // int8 where the file holds that; bf16 where the CPU has fast bf16 products; else fp32
  kFp32,
  kBf16,  // bf16 products with fp32 sums
  kInt8,  // 8-bit weights with a scale per row; activations in bf16, quantized for products
};

// Immutable; copies are cheap and share the weights; every method may be called from several
// threads.
class LanguageModel {
 public:
  // Reads a run directory (or any directory with config.json, model.safetensors and
  // tokenizer.json). Throws Error: kNotFound, kCorrupt, kInvalid.
  static LanguageModel Load(const std::string& directory, Precision precision = Precision::kAuto);

  const ModelConfig& config() const;
  const Tokenizer& tokenizer() const;
  int64_t parameter_count() const;
  Precision precision() const;  // not kAuto

  // Logits of the token after each position, [tokens.size(), config().vocab_size] in fp32. Throws
  // Error (kInvalid) for a token outside the vocabulary or more tokens than config().seq_len.
  std::vector<float> Logits(std::span<const int32_t> tokens) const;

  // For the library itself.
  struct Impl;
  explicit LanguageModel(std::shared_ptr<const Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_H_

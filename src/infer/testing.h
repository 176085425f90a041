// Small models for the tests of this folder. No part of the library.
#ifndef DENSEFORMER_INFER_TESTING_H_
#define DENSEFORMER_INFER_TESTING_H_

#include <utility>

#include "infer/language_model.h"

namespace denseformer::testing {

// A model of bytes with random weights that are far from uniform, so that greedy and sampled texts
// differ.
inline LanguageModel ByteModel(const char* dwa = "1x1", int seq_len = 48,
                               WeightFormat format = WeightFormat::kF32,
                               const char* mixer = "static", const char* streams = "r") {
  ModelConfig config = ModelConfig::Preset("test");
  config.seq_len = seq_len;
  config.vocab_size = 320;  // more rows than the 257 tokens
  config.dwa = dwa;
  config.mixer = mixer;
  config.streams = streams;
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(3);
  for (float& weight : model.weights()) weight *= 4;
  return MakeLanguageModel(model.Frozen(format), Tokenizer::Bytes());
}

}  // namespace denseformer::testing

#endif  // DENSEFORMER_INFER_TESTING_H_

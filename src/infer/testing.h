// Small models for the tests of this folder. No part of the library.
#ifndef DENSEFORMER_INFER_TESTING_H_
#define DENSEFORMER_INFER_TESTING_H_

#include <cmath>

#include "base/random.h"
#include "infer/language_model.h"

namespace denseformer::testing {

// A model of bytes with random weights that are far from uniform, so that greedy and sampled texts
// differ, and with mixers that are far from their start as the identity.
inline LanguageModel ByteModel(const char* dwa = "1x1", int seq_len = 48,
                               WeightFormat format = WeightFormat::kF32,
                               const char* mixer = "static", const char* streams = "r",
                               const char* norm = "none") {
  ModelConfig config = ModelConfig::Preset("test");
  config.seq_len = seq_len;
  config.vocab_size = 320;  // more rows than the 257 tokens
  config.dwa = dwa;
  config.mixer = mixer;
  config.streams = streams;
  config.mixer_norm = norm;
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(3);
  for (const Parameter& parameter : model.table().all()) {
    Random random(3, HashName(parameter.name));
    const float deviation =
        parameter.matrix() ? 1 / std::sqrt(static_cast<float>(parameter.shape[1])) : 0.3f;
    for (float& weight : model.weights().subspan(static_cast<size_t>(parameter.offset),
                                                 static_cast<size_t>(parameter.count()))) {
      weight = parameter.mixes() ? weight + deviation * random.Normal() : 4 * weight;
    }
  }
  return MakeLanguageModel(model.Frozen(format), Tokenizer::Bytes());
}

}  // namespace denseformer::testing

#endif  // DENSEFORMER_INFER_TESTING_H_

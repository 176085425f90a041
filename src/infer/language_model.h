// What a LanguageModel holds.
#ifndef DENSEFORMER_INFER_LANGUAGE_MODEL_H_
#define DENSEFORMER_INFER_LANGUAGE_MODEL_H_

#include <memory>

#include "denseformer/model.h"
#include "model/model.h"

namespace denseformer {

struct LanguageModel::Impl {
  Model model;
  Tokenizer tokenizer;
};

// For tests and commands that make a model without a directory.
LanguageModel MakeLanguageModel(Model model, Tokenizer tokenizer);

}  // namespace denseformer

#endif  // DENSEFORMER_INFER_LANGUAGE_MODEL_H_

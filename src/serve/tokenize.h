// The tokenizer over HTTP, as lm-evaluation-harness asks for it.
#ifndef DENSEFORMER_SERVE_TOKENIZE_H_
#define DENSEFORMER_SERVE_TOKENIZE_H_

#include <vector>

#include "denseformer/model.h"
#include "serve/fields.h"

namespace denseformer {

std::vector<FieldInfo> TokenizeFields();
std::vector<FieldInfo> DetokenizeFields();

// Throw RequestError.
Json TokenizeAnswer(const LanguageModel& model, const Json& body);
Json DetokenizeAnswer(const LanguageModel& model, const Json& body);
Json TokenizerInfoAnswer(const LanguageModel& model);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_TOKENIZE_H_

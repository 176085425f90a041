// POST /depth: the view into the depth of the model at one token, for the page and for scripts.
#ifndef DENSEFORMER_SERVE_DEPTH_ENDPOINT_H_
#define DENSEFORMER_SERVE_DEPTH_ENDPOINT_H_

#include <cstdint>
#include <vector>

#include "denseformer/model.h"
#include "serve/fields.h"

namespace denseformer {

struct DepthRequest {
  std::string prompt;
  std::vector<int32_t> tokens;  // in the end with those of the prompt before them
  int32_t next = -1;
  int likeliest = 3;
};

std::vector<FieldInfo> DepthFields();

// Throws RequestError.
DepthRequest ParseDepth(const LanguageModel& model, const Json& body);

// Computes; for the engine's thread.
Json DepthAnswer(const LanguageModel& model, const DepthRequest& request);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_DEPTH_ENDPOINT_H_

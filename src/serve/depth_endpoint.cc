#include "serve/depth_endpoint.h"

#include "base/error.h"
#include "infer/depth_view.h"
#include "serve/answer.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

constexpr Field<DepthRequest> kFields[] = {
    {{"prompt", FieldType::kString, 0, 0, "\"\"", "Text before the tokens"},
     [](DepthRequest& r, const Json& v) { r.prompt = v.get<std::string>(); }},
    {{"tokens", FieldType::kTokens, 0, kAnySize, "[]",
      "Token ids after the prompt; the view is at the last one"},
     [](DepthRequest& r, const Json& v) { r.tokens = v.get<std::vector<int32_t>>(); }},
    {{"next", FieldType::kInteger, 0, INT32_MAX, "",
      "The token that followed: its probability and rank at every depth"},
     [](DepthRequest& r, const Json& v) { r.next = v.get<int32_t>(); }},
    {{"top", FieldType::kInteger, 1, 100, "3", "Likeliest tokens per depth"},
     [](DepthRequest& r, const Json& v) { r.likeliest = v.get<int>(); }},
};

Json TokenJson(const Tokenizer& tokenizer, const TokenProbability& token) {
  return {{"id", token.id}, {"text", TokenName(tokenizer, token.id)}, {"logprob", token.logprob}};
}

Json ModuleJson(const DepthModuleView& module) {
  Json json = {{"depth", module.depth},
               {"stream", module.stream},
               {"norm", module.norm},
               {"contributions", Json::array()}};
  for (const DepthContribution& part : module.contributions) {
    json["contributions"].push_back({{"source", part.source},
                                     {"vector", part.increment ? "V" : "X"},
                                     {"weight", part.weight},
                                     {"norm", part.norm}});
  }
  return json;
}

Json PredictionJson(const Tokenizer& tokenizer, const DepthPrediction& prediction) {
  Json json = {{"depth", prediction.depth},
               {"x_norm", prediction.x_norm},
               {"y_norm", prediction.y_norm},
               {"top", Json::array()}};
  for (const TokenProbability& likely : prediction.likeliest) {
    json["top"].push_back(TokenJson(tokenizer, likely));
  }
  if (prediction.next_rank > 0) {
    json["next"] = TokenJson(tokenizer, prediction.next);
    json["next"]["rank"] = prediction.next_rank;
  }
  return json;
}

}  // namespace

std::vector<FieldInfo> DepthFields() { return Infos<DepthRequest>(kFields); }

DepthRequest ParseDepth(const LanguageModel& model, const Json& body) {
  DepthRequest request;
  ReadFields<DepthRequest>(kFields, body, request);
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<int32_t> tokens = tokenizer.Encode(request.prompt);
  // As a completion does: an empty prompt begins a document.
  if (tokens.empty() && tokenizer.end_of_text() >= 0) tokens.push_back(tokenizer.end_of_text());
  tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
  request.tokens = std::move(tokens);
  const int64_t context = model.config().seq_len;
  if (static_cast<int64_t>(request.tokens.size()) > context) {
    throw RequestError(400, "tokens",
                       fmt::format("tokens: {} with the prompt's, but the model's context has {}",
                                   request.tokens.size(), context));
  }
  for (const int32_t token : request.tokens) {
    if (token >= tokenizer.vocab_size()) {
      throw RequestError(
          400, "tokens",
          fmt::format("tokens: got {}, expected 0 to {}", token, tokenizer.vocab_size() - 1));
    }
  }
  if (request.next >= tokenizer.vocab_size()) {
    throw RequestError(
        400, "next",
        fmt::format("next: got {}, expected 0 to {}", request.next, tokenizer.vocab_size() - 1));
  }
  return request;
}

Json DepthAnswer(const LanguageModel& model, const DepthRequest& request) {
  const DepthView view = ViewDepth(model, request.tokens, request.next, request.likeliest);
  const Tokenizer& tokenizer = model.tokenizer();
  Json answer = {{"token", TokenName(tokenizer, request.tokens.back())},
                 {"position", request.tokens.size() - 1},
                 {"depth", model.config().n_layer},
                 {"dwa", model.config().dwa},
                 {"mixer", model.config().mixer},
                 {"modules", Json::array()},
                 {"predictions", Json::array()}};
  for (const DepthModuleView& module : view.modules)
    answer["modules"].push_back(ModuleJson(module));
  for (const DepthPrediction& prediction : view.predictions) {
    answer["predictions"].push_back(PredictionJson(tokenizer, prediction));
  }
  return answer;
}

}  // namespace denseformer

#include "serve/tokenize.h"

#include <string>

#include "base/error.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

struct TokenizeRequest {
  std::string prompt;
};

constexpr Field<TokenizeRequest> kTokenizeFields[] = {
    {{"prompt", FieldType::kString, 0, 0, nullptr,
      "The text; names of special tokens are their ids here"},
     [](TokenizeRequest& r, const Json& v) { r.prompt = v.get<std::string>(); }},
    {{"add_special_tokens", FieldType::kBool, 0, 0, "true",
      "Without effect: these models begin a text without a token of its own"},
     nullptr},
    {{"model", FieldType::kIgnored, 0, 0, "", "Ignored"}, nullptr},
};

struct DetokenizeRequest {
  std::vector<int32_t> tokens;
};

constexpr Field<DetokenizeRequest> kDetokenizeFields[] = {
    {{"tokens", FieldType::kTokens, 0, kAnySize, nullptr, "Token ids"},
     [](DetokenizeRequest& r, const Json& v) { r.tokens = v.get<std::vector<int32_t>>(); }},
    {{"model", FieldType::kIgnored, 0, 0, "", "Ignored"}, nullptr},
};

}  // namespace

std::vector<FieldInfo> TokenizeFields() { return Infos<TokenizeRequest>(kTokenizeFields); }
std::vector<FieldInfo> DetokenizeFields() { return Infos<DetokenizeRequest>(kDetokenizeFields); }

Json TokenizeAnswer(const LanguageModel& model, const Json& body) {
  TokenizeRequest request;
  ReadFields<TokenizeRequest>(kTokenizeFields, body, request);
  const std::vector<int32_t> tokens =
      model.tokenizer().Encode(request.prompt, SpecialTokens::kRecognize);
  return {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model.config().seq_len}};
}

Json DetokenizeAnswer(const LanguageModel& model, const Json& body) {
  DetokenizeRequest request;
  ReadFields<DetokenizeRequest>(kDetokenizeFields, body, request);
  try {
    return {{"prompt", model.tokenizer().Decode(request.tokens)}};
  } catch (const Error& error) {
    throw RequestError(400, "tokens", fmt::format("tokens: {}", error.what()));
  }
}

Json TokenizerInfoAnswer(const LanguageModel& model) {
  const Tokenizer& tokenizer = model.tokenizer();
  Json eos = nullptr;
  if (tokenizer.end_of_text() >= 0)
    eos = std::string(tokenizer.TokenBytes(tokenizer.end_of_text()));
  return {{"tokenizer_class", "byte-level BPE"},
          {"vocab_size", tokenizer.vocab_size()},
          {"eos_token", eos},
          {"eos_token_id", tokenizer.end_of_text()},
          {"bos_token", nullptr},
          {"pad_token", eos},
          {"model_max_length", model.config().seq_len},
          {"hash", tokenizer.Hash()}};
}

}  // namespace denseformer

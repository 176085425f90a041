#include "serve/answer.h"

#include <fmt/ranges.h>

#include <chrono>
#include <random>
#include <utility>

#include "base/error.h"
#include "serve/utf8.h"

namespace denseformer {
namespace {

std::string RandomId(const char* prefix) {
  static std::random_device device;
  return fmt::format("{}-{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

Json FinishJson(const std::optional<FinishReason>& finish) {
  if (!finish) return nullptr;
  const bool stop = *finish == FinishReason::kStop || *finish == FinishReason::kEndOfText;
  return stop ? "stop" : "length";
}

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

std::vector<int32_t> Ids(const ChoiceDelta& delta) {
  std::vector<int32_t> ids;
  for (const TokenRecord& record : delta.tokens) ids.push_back(record.token.chosen.id);
  return ids;
}

std::string Event(const Json& json) { return "data: " + ToText(json) + "\n\n"; }

}  // namespace

std::string TokenName(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view bytes = tokenizer.TokenBytes(id);
  if (ValidUtf8(bytes) == bytes) return std::string(bytes);
  std::string name = "bytes:";
  for (const unsigned char byte : bytes) name += fmt::format("\\x{:02x}", byte);
  return name;
}

AnswerFormat::AnswerFormat(const Tokenizer& tokenizer, const CompletionRequest& request,
                           std::string model, uint64_t seed)
    : tokenizer_(tokenizer),
      chat_(request.chat),
      logprobs_(request.logprobs >= 0),
      token_ids_(request.return_token_ids),
      model_(std::move(model)),
      id_(RandomId(chat_ ? "chatcmpl" : "cmpl")),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      seed_(seed) {
  chunk_head_ = ToText(Head(chat_ ? "chat.completion.chunk" : "text_completion"));
  chunk_head_.pop_back();  // the brace: more members follow
}

Json AnswerFormat::Head(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

Json AnswerFormat::TextLogprobs(const ChoiceDelta& delta) const {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(),
       offsets = Json::array();
  for (const TokenRecord& record : delta.tokens) {
    const GeneratedToken& token = record.token;
    tokens.push_back(TokenName(tokenizer_, token.chosen.id));
    offsets.push_back(record.offset);
    if (!record.known) {
      logprobs.push_back(nullptr);
      top.push_back(nullptr);
      continue;
    }
    logprobs.push_back(token.chosen.logprob);
    Json likeliest = Json::object();
    for (const TokenProbability& likely : token.likeliest) {
      likeliest.emplace(TokenName(tokenizer_, likely.id), likely.logprob);
    }
    likeliest.emplace(TokenName(tokenizer_, token.chosen.id), token.chosen.logprob);
    top.push_back(std::move(likeliest));
  }
  return {{"tokens", tokens},
          {"token_logprobs", logprobs},
          {"top_logprobs", top},
          {"text_offset", offsets}};
}

Json AnswerFormat::ChatLogprobs(const ChoiceDelta& delta) const {
  const auto entry = [&](const TokenProbability& token) {
    Json bytes = Json::array();
    for (const unsigned char byte : tokenizer_.TokenBytes(token.id)) bytes.push_back(byte);
    return Json{
        {"token", TokenName(tokenizer_, token.id)}, {"logprob", token.logprob}, {"bytes", bytes}};
  };
  Json content = Json::array();
  for (const TokenRecord& record : delta.tokens) {
    Json token = entry(record.token.chosen);
    token["top_logprobs"] = Json::array();
    for (const TokenProbability& likely : record.token.likeliest) {
      token["top_logprobs"].push_back(entry(likely));
    }
    content.push_back(std::move(token));
  }
  return {{"content", content}};
}

void AnswerFormat::AddTokens(const ChoiceDelta& delta, Json& choice) const {
  choice["logprobs"] = nullptr;
  if (logprobs_) choice["logprobs"] = chat_ ? ChatLogprobs(delta) : TextLogprobs(delta);
  if (token_ids_) choice["token_ids"] = Ids(delta);
}

Json AnswerFormat::Whole(const std::vector<ChoiceDelta>& choices, const Usage& usage) const {
  Json answer = Head(chat_ ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  for (size_t index = 0; index < choices.size(); ++index) {
    const ChoiceDelta& choice = choices[index];
    Json json = {{"index", index}};
    if (chat_) {
      json["message"] = {{"role", "assistant"}, {"content", choice.text}};
    } else {
      json["text"] = choice.text;
    }
    AddTokens(choice, json);
    json["finish_reason"] = FinishJson(choice.finish);
    answer["choices"].push_back(std::move(json));
  }
  answer["usage"] = UsageJson(usage);
  answer["seed"] = seed_;
  return answer;
}

// By hand, and the same bytes as those of a document: one per token of every text is what the I/O
// thread takes from the engine's cores.
std::string AnswerFormat::Chunk(int index, const ChoiceDelta& delta, bool first, bool usage) const {
  std::string text = fmt::format("data: {},\"choices\":[{{\"index\":{},", chunk_head_, index);
  if (chat_) {
    text += "\"delta\":{";
    if (first) text += "\"role\":\"assistant\",\"content\":" + ToText(delta.text);
    if (!first && !delta.text.empty()) text += "\"content\":" + ToText(delta.text);
    text += '}';
  } else {
    text += "\"text\":" + ToText(delta.text);
  }
  text += ",\"logprobs\":";
  text += logprobs_ ? ToText(chat_ ? ChatLogprobs(delta) : TextLogprobs(delta)) : "null";
  if (token_ids_) text += fmt::format(",\"token_ids\":[{}]", fmt::join(Ids(delta), ","));
  text += ",\"finish_reason\":" + ToText(FinishJson(delta.finish)) + "}]";
  if (usage) text += ",\"usage\":null";
  if (first) text += fmt::format(",\"seed\":{}", seed_);
  return text + "}\n\n";
}

std::string AnswerFormat::UsageChunk(const Usage& usage) const {
  Json chunk = Head(chat_ ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array();
  chunk["usage"] = UsageJson(usage);
  return Event(chunk);
}

std::string AnswerFormat::ErrorEvent(const std::string& body) { return "data: " + body + "\n\n"; }

std::string AnswerFormat::Done() { return "data: [DONE]\n\n"; }

}  // namespace denseformer

#include "serve/answer.h"

#include <fmt/ranges.h>

#include <algorithm>
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

// Of an answer, per token and per likely token: names of usual length, numbers, what is around.
constexpr int64_t kTextBytes = 12, kIdBytes = 8;
constexpr int64_t kTextEntryBytes = 56, kChatEntryBytes = 128, kLikelyBytes = 40;

int64_t ChoiceBytes(const CompletionRequest& request, const Prompt& prompt) {
  const int64_t echoed = request.echo ? static_cast<int64_t>(prompt.tokens.size()) : 0;
  int64_t generated = prompt.max_tokens;
  if (request.stream) {  // what a stop string, or a character, holds back
    size_t held = 4;
    for (const std::string& stop : request.stop) held = std::max(held, stop.size());
    generated = std::min(generated, static_cast<int64_t>(held));
  }
  int64_t token = 0;
  if (request.return_token_ids) token += kIdBytes;
  if (request.logprobs >= 0) {
    const int64_t likely = request.chat ? kChatEntryBytes : kLikelyBytes;
    token += request.chat ? kChatEntryBytes : kTextEntryBytes + kLikelyBytes;
    token += request.logprobs * (likely + static_cast<int64_t>(sizeof(TokenProbability)));
  }
  // A vector grows to twice its size.
  if (token > 0) token += 2 * static_cast<int64_t>(sizeof(TokenRecord));
  // The text as it is collected and in the answer.
  const int64_t text = static_cast<int64_t>(prompt.text.size()) + generated * kTextBytes;
  return 2 * text + (echoed + generated) * token;
}

}  // namespace

int64_t AnswerBytes(const CompletionRequest& request) {
  int64_t bytes = 0;
  for (const Prompt& prompt : request.prompts) bytes += request.n * ChoiceBytes(request, prompt);
  return bytes;
}

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

// Answers are written by hand, token by token, and are the same bytes as those of a document. One
// of many log-probabilities would take many times the memory of the answer, and making one for
// every token of a stream takes the I/O thread's time from the engine's cores.
void AnswerFormat::AddTextLogprobs(const ChoiceDelta& delta, std::string& text) const {
  const auto list = [&](const char* name, const auto& entry) {
    text += name;
    for (const TokenRecord& record : delta.tokens) {
      if (&record != delta.tokens.data()) text += ',';
      entry(record);
    }
  };
  list("{\"tokens\":[", [&](const TokenRecord& record) {
    text += ToText(TokenName(tokenizer_, record.token.chosen.id));
  });
  list("],\"token_logprobs\":[", [&](const TokenRecord& record) {
    text += record.known ? ToText(record.token.chosen.logprob) : "null";
  });
  list("],\"top_logprobs\":[", [&](const TokenRecord& record) {
    Json likeliest = nullptr;
    if (record.known) {
      likeliest = Json::object();
      for (const TokenProbability& likely : record.token.likeliest) {
        likeliest.emplace(TokenName(tokenizer_, likely.id), likely.logprob);
      }
      likeliest.emplace(TokenName(tokenizer_, record.token.chosen.id), record.token.chosen.logprob);
    }
    text += ToText(likeliest);
  });
  list("],\"text_offset\":[",
       [&](const TokenRecord& record) { text += std::to_string(record.offset); });
  text += "]}";
}

void AnswerFormat::AddChatLogprobs(const ChoiceDelta& delta, std::string& text) const {
  const auto entry = [&](const TokenProbability& token) {
    Json bytes = Json::array();
    for (const unsigned char byte : tokenizer_.TokenBytes(token.id)) bytes.push_back(byte);
    return Json{
        {"token", TokenName(tokenizer_, token.id)}, {"logprob", token.logprob}, {"bytes", bytes}};
  };
  text += "{\"content\":[";
  for (const TokenRecord& record : delta.tokens) {
    if (&record != delta.tokens.data()) text += ',';
    Json token = entry(record.token.chosen);
    token["top_logprobs"] = Json::array();
    for (const TokenProbability& likely : record.token.likeliest) {
      token["top_logprobs"].push_back(entry(likely));
    }
    text += ToText(token);
  }
  text += "]}";
}

void AnswerFormat::AddTokens(const ChoiceDelta& delta, std::string& text) const {
  text += ",\"logprobs\":";
  if (!logprobs_) {
    text += "null";
  } else if (chat_) {
    AddChatLogprobs(delta, text);
  } else {
    AddTextLogprobs(delta, text);
  }
  if (token_ids_) text += fmt::format(",\"token_ids\":[{}]", fmt::join(Ids(delta), ","));
  text += ",\"finish_reason\":" + ToText(FinishJson(delta.finish));
}

std::string AnswerFormat::Whole(std::vector<ChoiceDelta> choices, const Usage& usage) const {
  std::string text = ToText(Head(chat_ ? "chat.completion" : "text_completion"));
  text.pop_back();
  text += ",\"choices\":[";
  for (size_t index = 0; index < choices.size(); ++index) {
    // Freed at the end: what is written need not be there twice.
    const ChoiceDelta choice = std::move(choices[index]);
    text += fmt::format("{}{{\"index\":{},", index > 0 ? "," : "", index);
    text += chat_ ? "\"message\":" + ToText({{"role", "assistant"}, {"content", choice.text}})
                  : "\"text\":" + ToText(choice.text);
    AddTokens(choice, text);
    text += '}';
  }
  text += "],\"usage\":" + ToText(UsageJson(usage));
  return text + fmt::format(",\"seed\":{}}}", seed_);
}

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
  AddTokens(delta, text);
  text += "}]";
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

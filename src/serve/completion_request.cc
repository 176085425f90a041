#include "serve/completion_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

using Request = CompletionRequest;
using Type = FieldType;

[[noreturn]] void ThrowParam(const char* name, const std::string& message) {
  throw RequestError(400, name, fmt::format("{}: {}", name, message));
}

constexpr const char* kOnlyZero = R"({"minimum": 0, "maximum": 0})";

// Fields of other servers that would change the answer: only their neutral value is right.
void OnlyZero(const char* name, const Json& value) {
  if (value != 0) ThrowParam(name, "not supported; see repetition_penalty");
}

uint64_t Seed(const Json& value) {
  // A number with a point or an exponent, or one that is too large for an integer.
  if (value.is_number_float() && !(std::abs(value.get<double>()) < 0x1p63)) {
    ThrowParam("seed", fmt::format("got {}, expected a whole number of 64 bits", ToText(value)));
  }
  return value.is_number_unsigned() ? value.get<uint64_t>()
                                    : static_cast<uint64_t>(value.get<int64_t>());
}

std::vector<std::string> Strings(const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

struct StreamOptions {
  bool include_usage = false;
};

constexpr Field<StreamOptions> kStreamOptions[] = {
    {{"include_usage", Type::kBool, 0, 0, "false", "One more chunk at the end with the usage"},
     [](StreamOptions& o, const Json& v) { o.include_usage = v.get<bool>(); }},
    {{"include_obfuscation", Type::kIgnored, 0, 0, "", "Ignored"}, nullptr},
};

constexpr size_t kLongestStop = 4096;  // bytes

constexpr Field<Request> kCommonFields[] = {
    {{"model", Type::kString, 0, 0, "", "The name of the served model; without it, that one"},
     [](Request& r, const Json& v) { r.model = v.get<std::string>(); }},
    {{"max_tokens", Type::kInteger, 0, 1 << 30, "",
      "Most tokens of a text; default: 16 for completions, what the context holds for chats. A "
      "text "
      "ends at the model's context in any case"},
     [](Request& r, const Json& v) { r.max_tokens = v.get<int>(); }},
    {{"temperature", Type::kNumber, 0, 100, "1", "Spread of the choice; 0: the likeliest token"},
     [](Request& r, const Json& v) { r.sampling.temperature = v.get<double>(); }},
    {{"top_p", Type::kNumber, 1e-9, 1, "1",
      "Only the likeliest tokens that together have this probability"},
     [](Request& r, const Json& v) { r.sampling.top_p = v.get<double>(); }},
    {{"top_k", Type::kInteger, -1, 1 << 24, "0", "Only the k likeliest tokens; 0 or -1: all"},
     [](Request& r, const Json& v) { r.sampling.top_k = std::max(0, v.get<int>()); }},
    {{"min_p", Type::kNumber, 0, 1, "0",
      "Only tokens with at least this share of the largest probability"},
     [](Request& r, const Json& v) { r.sampling.min_p = v.get<double>(); }},
    {{"repetition_penalty", Type::kNumber, 0.01, 100, "1",
      "Above 1: tokens that occurred before are less likely"},
     [](Request& r, const Json& v) { r.sampling.repetition_penalty = v.get<double>(); }},
    {{"seed", Type::kInteger, -9223372036854775808.0, 18446744073709551615.0, "",
      "Same seed, same text; choice k of n is choice 0 with seed + k. Without it a random one, "
      "which "
      "the answer names",
      R"({"minimum": -9223372036854775808, "maximum": 18446744073709551615})"},
     [](Request& r, const Json& v) { r.seed = Seed(v); }},
    {{"n", Type::kInteger, 1, 1024, "1", "Texts per prompt"},
     [](Request& r, const Json& v) { r.n = v.get<int>(); }},
    {{"stop", Type::kStrings, 0, 16, "",
      "The text ends before the first of these, up to 16 strings of 4096 bytes"},
     [](Request& r, const Json& v) {
       r.stop = Strings(v);
       for (const std::string& stop : r.stop) {
         if (stop.size() <= kLongestStop) continue;
         ThrowParam("stop", fmt::format("a string of {} bytes, expected at most {}", stop.size(),
                                        kLongestStop));
       }
     }},
    {{"stream", Type::kBool, 0, 0, "false", "Server-sent events, one chunk per token"},
     [](Request& r, const Json& v) { r.stream = v.get<bool>(); }},
    {{"stream_options", Type::kObject, 0, 0, "", "{\"include_usage\": true}: usage at the end",
      R"({"properties": {"include_usage": {"type": ["boolean", "null"]}, "include_obfuscation": {}},
          "additionalProperties": false})"},
     [](Request& r, const Json& v) {
       StreamOptions options;
       ReadFields<StreamOptions>(kStreamOptions, v, options);
       r.include_usage = options.include_usage;
     }},
    {{"return_token_ids", Type::kBool, 0, 0, "false",
      "Also the token ids of each text, as token_ids of the choice"},
     [](Request& r, const Json& v) { r.return_token_ids = v.get<bool>(); }},
    {{"ignore_eos", Type::kBool, 0, 0, "false", "Continue after the end-of-text token"},
     [](Request& r, const Json& v) { r.ignore_eos = v.get<bool>(); }},
    {{"context", Type::kString, 0, 0, "\"stop\"",
      "At the model's context: stop, or slide (drop the older half of the window)",
      R"({"enum": ["stop", "slide"]})"},
     [](Request& r, const Json& v) {
       if (v != "stop" && v != "slide") {
         ThrowParam("context", fmt::format("got {}, expected \"stop\" or \"slide\"", ToText(v)));
       }
       r.context = v == "slide" ? ContextPolicy::kSlide : ContextPolicy::kStop;
     }},
    {{"presence_penalty", Type::kNumber, -2, 2, "0", "Only 0; see repetition_penalty", kOnlyZero},
     [](Request&, const Json& v) { OnlyZero("presence_penalty", v); }},
    {{"frequency_penalty", Type::kNumber, -2, 2, "0", "Only 0; see repetition_penalty", kOnlyZero},
     [](Request&, const Json& v) { OnlyZero("frequency_penalty", v); }},
    {{"logit_bias", Type::kObject, 0, 0, "{}", "Only empty", R"({"maxProperties": 0})"},
     [](Request&, const Json& v) {
       if (!v.empty()) ThrowParam("logit_bias", "not supported; leave it out");
     }},
    {{"user", Type::kIgnored, 0, 0, "", "Ignored"}, nullptr},
    {{"metadata", Type::kIgnored, 0, 0, "", "Ignored"}, nullptr},
    {{"store", Type::kIgnored, 0, 0, "", "Ignored"}, nullptr},
    {{"service_tier", Type::kIgnored, 0, 0, "", "Ignored"}, nullptr},
    {{"safety_identifier", Type::kIgnored, 0, 0, "", "Ignored"}, nullptr},
    {{"prompt_cache_key", Type::kIgnored, 0, 0, "", "Ignored: prefixes are found by themselves"},
     nullptr},
};

constexpr Field<Request> kTextFields[] = {
    {{"prompt", Type::kPrompt, 0, kAnySize, nullptr,
      "A string, a list of strings, token ids, or a list of lists of token ids"},
     [](Request& r, const Json& v) { r.prompt = v; }},
    {{"echo", Type::kBool, 0, 0, "false", "The prompt before the text, also with its logprobs"},
     [](Request& r, const Json& v) { r.echo = v.get<bool>(); }},
    {{"logprobs", Type::kInteger, 0, 1 << 24, "",
      "The log-probability of each token, and of this many of the likeliest"},
     [](Request& r, const Json& v) { r.logprobs = v.get<int>(); }},
    {{"best_of", Type::kInteger, 1, 1024, "", "Only the same as n"},
     [](Request& r, const Json& v) { r.best_of = v.get<int>(); }},
    {{"suffix", Type::kString, 0, 0, "", "Only empty", R"({"maxLength": 0})"},
     [](Request&, const Json& v) {
       if (v != "") ThrowParam("suffix", "not supported; leave it out");
     }},
};

constexpr Field<Request> kChatFields[] = {
    {{"messages", Type::kMessages, 1, 4096, nullptr, "The conversation: role and content of each"},
     [](Request& r, const Json& v) {
       for (const Json& message : v) {
         ChatMessage& added = r.messages.emplace_back();
         added.role = message["role"].get<std::string>();
         const Json& content = message["content"];
         if (content.is_string()) added.content = content.get<std::string>();
         if (content.is_array()) {
           for (const Json& part : content) added.content += part["text"].get<std::string>();
         }
       }
     }},
    {{"max_completion_tokens", Type::kInteger, 0, 1 << 30, "", "Another name of max_tokens"},
     [](Request& r, const Json& v) { r.max_tokens = v.get<int>(); }},
    {{"logprobs", Type::kBool, 0, 0, "false", "The log-probability of each token"},
     [](Request& r, const Json& v) { r.chat_logprobs = v.get<bool>(); }},
    {{"top_logprobs", Type::kInteger, 0, 1 << 24, "0",
      "With logprobs: also this many of the likeliest tokens"},
     [](Request& r, const Json& v) { r.top_logprobs = v.get<int>(); }},
};

std::vector<Field<Request>> Join(std::span<const Field<Request>> own) {
  std::vector<Field<Request>> all(own.begin(), own.end());
  all.insert(all.end(), std::begin(kCommonFields), std::end(kCommonFields));
  return all;
}

// The entries of a prompt, which must outlive them: one text or list of ids each.
std::vector<const Json*> Entries(const Json& prompt) {
  const bool list = prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
  if (!list) return {&prompt};
  std::vector<const Json*> entries;
  for (const Json& entry : prompt) entries.push_back(&entry);
  return entries;
}

// Throws where the tokens cannot be a prompt; an empty one becomes the begin of a document.
void CheckPrompt(const Tokenizer& tokenizer, int64_t context, const Request& request,
                 std::vector<int32_t>& tokens) {
  const char* name = request.chat ? "messages" : "prompt";
  if (tokens.empty() && tokenizer.end_of_text() < 0) {
    ThrowParam(name, "empty, and the tokenizer has no end-of-text token to begin with");
  }
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_text());
  for (size_t n = 0; n < tokens.size(); ++n) {
    if (tokens[n] < tokenizer.vocab_size()) continue;
    ThrowParam(name, fmt::format("token {} at position {}, expected 0 to {}", tokens[n], n,
                                 tokenizer.vocab_size() - 1));
  }
  const bool scored = request.echo && request.logprobs >= 0;
  if (static_cast<int64_t>(tokens.size()) > context &&
      (scored || request.context == ContextPolicy::kStop)) {
    ThrowParam(name,
               fmt::format("{} tokens, but the model's context has {}; shorten it{}", tokens.size(),
                           context, scored ? "" : " or send \"context\": \"slide\""));
  }
}

Prompt TextPrompt(const Tokenizer& tokenizer, int64_t context, const Request& request,
                  const Json& entry) {
  Prompt prompt;
  if (entry.is_string()) {
    std::string text = entry.get<std::string>();
    prompt.tokens = tokenizer.Encode(text);
    CheckPrompt(tokenizer, context, request, prompt.tokens);
    if (request.echo) prompt.text = std::move(text);
    return prompt;
  }
  prompt.tokens = entry.get<std::vector<int32_t>>();
  const bool empty = prompt.tokens.empty();
  CheckPrompt(tokenizer, context, request, prompt.tokens);
  if (!request.echo || empty) return prompt;
  for (const int32_t token : prompt.tokens) prompt.text += tokenizer.TokenBytes(token);
  return prompt;
}

}  // namespace

std::span<const Field<Request>> CompletionFields() {
  static const std::vector<Field<Request>> fields = Join(kTextFields);
  return fields;
}

std::span<const Field<Request>> ChatFields() {
  static const std::vector<Field<Request>> fields = Join(kChatFields);
  return fields;
}

CompletionRequest ParseCompletion(const Json& body, bool chat, const RequestLimits& limits) {
  Request request;
  request.chat = chat;
  ReadFields(chat ? ChatFields() : CompletionFields(), body, request);
  if (request.best_of > 0 && request.best_of != request.n) {
    ThrowParam("best_of",
               fmt::format("got {}, expected the same as n ({})", request.best_of, request.n));
  }
  if (request.top_logprobs > 0 && !request.chat_logprobs) {
    ThrowParam("top_logprobs", "needs logprobs to be true");
  }
  if (request.chat_logprobs) request.logprobs = std::max(0, request.top_logprobs);
  if (request.logprobs > limits.max_logprobs) {
    ThrowParam(chat ? "top_logprobs" : "logprobs",
               fmt::format("got {}, expected at most {}", request.logprobs, limits.max_logprobs));
  }
  if (request.include_usage && !request.stream) {
    ThrowParam("stream_options", "only with stream");
  }
  const size_t prompts = chat ? 1 : Entries(request.prompt).size();
  const size_t choices = static_cast<size_t>(request.n) * prompts;
  const size_t most = static_cast<size_t>(limits.max_choices);
  if (choices > most) {
    ThrowParam(prompts > most ? "prompt" : "n",
               fmt::format("{} texts (prompts times n), expected at most {}", choices, most));
  }
  return request;
}

void EncodePrompts(const Tokenizer& tokenizer, const ChatTemplate* chat, int64_t context,
                   const RequestLimits& limits, CompletionRequest& request) {
  if (request.chat) {
    if (chat == nullptr) {
      throw RequestError(400, "messages",
                         "messages: this model has no chat template; use /v1/completions, or start "
                         "the server with --chat-template");
    }
    Prompt& prompt = request.prompts.emplace_back();
    prompt.tokens = chat->Encode(tokenizer, request.messages);
    CheckPrompt(tokenizer, context, request, prompt.tokens);
    for (const std::string& stop : chat->stop()) request.stop.push_back(stop);
    request.messages = {};
  } else {
    for (const Json* entry : Entries(request.prompt)) {
      request.prompts.push_back(TextPrompt(tokenizer, context, request, *entry));
    }
    request.prompt = nullptr;
  }
  const int most = limits.max_tokens > 0 ? limits.max_tokens : 1 << 30;
  if (request.max_tokens.value_or(0) > most) {
    ThrowParam("max_tokens", fmt::format("got {}, expected at most {}", *request.max_tokens, most));
  }
  for (Prompt& prompt : request.prompts) {
    // Each by itself: a text does not depend on the other prompts of its request.
    const int64_t rest =
        std::max<int64_t>(1, context - static_cast<int64_t>(prompt.tokens.size()) + 1);
    const int64_t fallback = std::min<int64_t>(request.chat ? rest : 16, most);
    const int64_t wanted = request.max_tokens ? *request.max_tokens : fallback;
    prompt.max_tokens = static_cast<int>(
        std::min<int64_t>(wanted, request.context == ContextPolicy::kStop ? rest : most));
  }
}

}  // namespace denseformer

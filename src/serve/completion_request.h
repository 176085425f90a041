// A request for completions, of texts or of chats, as its JSON says it.
#ifndef DENSEFORMER_SERVE_COMPLETION_REQUEST_H_
#define DENSEFORMER_SERVE_COMPLETION_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "denseformer/generator.h"
#include "denseformer/tokenizer.h"
#include "serve/chat_template.h"
#include "serve/fields.h"

namespace denseformer {

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;    // what echo gives back; empty without it
  int max_tokens = 0;  // of each of its texts
};

// What one request may ask for.
struct RequestLimits {
  int max_choices = 128;  // prompts times n
  int max_tokens = 0;     // per choice; 0: whatever the context holds
  int max_logprobs = 20;
};

struct CompletionRequest {
  bool chat = false;
  std::string model;  // empty: whichever is served
  // As they came, until they are tokens.
  Json prompt;
  std::vector<ChatMessage> messages;

  std::vector<Prompt> prompts;  // the same as tokens

  SamplingOptions sampling;
  std::optional<uint64_t> seed;
  int n = 1, best_of = 0;
  std::optional<int> max_tokens;
  std::vector<std::string> stop;
  bool echo = false;
  bool ignore_eos = false;
  ContextPolicy context = ContextPolicy::kStop;
  int logprobs = -1;  // how many of the likeliest tokens; -1: no log-probabilities
  bool chat_logprobs = false;
  int top_logprobs = -1;
  bool return_token_ids = false;
  bool stream = false;
  bool include_usage = false;
};

std::span<const Field<CompletionRequest>> CompletionFields();
std::span<const Field<CompletionRequest>> ChatFields();

// Reads and checks a body. Throws RequestError. Fills all but `prompts`.
CompletionRequest ParseCompletion(const Json& body, bool chat, const RequestLimits& limits);

// Fills `prompts` and `stop`, and empties what the prompts came from: a request may wait
// for long. `chat` is the template, or nullptr. Throws RequestError.
void EncodePrompts(const Tokenizer& tokenizer, const ChatTemplate* chat, int64_t context,
                   const RequestLimits& limits, CompletionRequest& request);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_COMPLETION_REQUEST_H_

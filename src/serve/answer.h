// Answers to requests for completions as JSON, in OpenAI's forms.
#ifndef DENSEFORMER_SERVE_ANSWER_H_
#define DENSEFORMER_SERVE_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "denseformer/tokenizer.h"
#include "serve/choice.h"
#include "serve/json.h"

namespace denseformer {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

class AnswerFormat {
 public:
  // `tokenizer` must outlive it.
  AnswerFormat(const Tokenizer& tokenizer, const CompletionRequest& request, std::string model,
               uint64_t seed);

  // The whole answer.
  std::string Whole(std::vector<ChoiceDelta> choices, const Usage& usage) const;

  // Events of a stream ("data: ...\n\n"): what a choice has got, the usage at the end, and the end.
  // With `usage`, every chunk has a member for it.
  std::string Chunk(int index, const ChoiceDelta& delta, bool first, bool usage) const;
  std::string UsageChunk(const Usage& usage) const;
  static std::string ErrorEvent(const std::string& body);
  static std::string Done();

 private:
  Json Head(const char* object) const;
  // Log-probabilities and ids of the tokens, as far as asked for, as members of a choice.
  void AddTokens(const ChoiceDelta& delta, std::string& text) const;
  void AddTextLogprobs(const ChoiceDelta& delta, std::string& text) const;
  void AddChatLogprobs(const ChoiceDelta& delta, std::string& text) const;

  const Tokenizer& tokenizer_;
  const bool chat_, logprobs_, token_ids_;
  std::string model_, id_;
  int64_t created_;
  uint64_t seed_;
  std::string chunk_head_;  // what all chunks begin with
};

// The most memory, about, that is held at one time for the answer to a request whose prompts are
// encoded: tokens with their log-probabilities until their text is certain, or all of it is there
// where nothing is streamed, and the answer made of them.
int64_t AnswerBytes(const CompletionRequest& request);

// The text of a token as a name: "bytes:\xe2\x80" where it is not UTF-8, so that different tokens
// have different names.
std::string TokenName(const Tokenizer& tokenizer, int32_t id);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_ANSWER_H_

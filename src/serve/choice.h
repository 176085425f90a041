// One text in the making, from the events of its sequence to what the client gets of it.
#ifndef DENSEFORMER_SERVE_CHOICE_H_
#define DENSEFORMER_SERVE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "denseformer/engine.h"
#include "infer/text_stream.h"
#include "serve/completion_request.h"

namespace denseformer {

// A token of an answer, where log-probabilities or ids are asked for.
struct TokenRecord {
  GeneratedToken token;
  bool known = true;   // false: the first token of a prompt has no probability
  int64_t offset = 0;  // of its text in the answer, in characters
};

// What has become certain of a text.
struct ChoiceDelta {
  std::string text;  // whole characters
  std::vector<TokenRecord> tokens;
  std::optional<FinishReason> finish;

  bool empty() const { return text.empty() && tokens.empty() && !finish; }
  void Append(ChoiceDelta more);
};

class Choice {
 public:
  // The arguments must outlive it.
  Choice(const Tokenizer& tokenizer, const CompletionRequest& request, const Prompt& prompt);

  // After the end of the text, which a stop string may bring before the sequence ends, nothing more
  // comes.
  ChoiceDelta Take(EngineEvent event);

  bool finished() const { return finished_; }
  int completion_tokens() const { return completion_tokens_; }

 private:
  struct Held {
    TokenRecord record;
    size_t begin;  // of its bytes among all generated ones
  };

  void TakePrompt(ChoiceDelta& delta);
  // The text that is certain with this token, as bytes.
  std::string TakeToken(const EngineEvent& event);
  // Gives the held tokens their offsets, as far as `piece`, which the client gets next, has them.
  void Release(std::string_view piece);

  const Tokenizer& tokenizer_;
  const CompletionRequest& request_;
  const Prompt& prompt_;
  const bool recorded_;  // the client wants the tokens, not the text alone
  TextStream stream_;
  std::vector<GeneratedToken> prompt_logprobs_;
  std::vector<Held> held_;  // tokens whose text is not certain yet
  size_t bytes_ = 0;        // generated
  size_t released_ = 0;     // of these, given to the client
  int64_t characters_ = 0;  // given to the client, the prompt's included
  int completion_tokens_ = 0;
  bool begun_ = false, finished_ = false;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_CHOICE_H_

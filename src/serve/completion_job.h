// A request for completions in work: its sequences, and the answer that grows from their events.
#ifndef DENSEFORMER_SERVE_COMPLETION_JOB_H_
#define DENSEFORMER_SERVE_COMPLETION_JOB_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "denseformer/engine.h"
#include "denseformer/model.h"
#include "serve/answer.h"
#include "serve/choice.h"
#include "serve/engine_thread.h"
#include "serve/http.h"

namespace denseformer {

class CompletionJob {
 public:
  using Clock = std::chrono::steady_clock;

  // `request` has its prompts; the model's name and `headers` are for the answer.
  CompletionJob(std::shared_ptr<Exchange> exchange, CompletionRequest request, LanguageModel model,
                const std::string& model_name, HttpHeaders headers, Clock::time_point begin);

  int choices() const { return static_cast<int>(choices_.size()); }
  // What the engine is to do for choice `index`.
  SequenceRequest Sequence(int index) const;
  // Prompt and text of all choices at their longest.
  int64_t most_tokens() const;
  // The most memory that its answer takes until it is sent: AnswerBytes.
  int64_t most_bytes() const;

  // The keys of the sequences, one per choice.
  std::vector<SequenceKey> keys;

  // The engine has choice `index` in its queue. With the last one a stream begins.
  void Accepted();
  // Takes what came for choice `index` and sends what is certain. Afterwards the text may be
  // finished although its sequence is not.
  void Take(int index, EngineEvent event);
  bool finished(int index) const { return choices_[static_cast<size_t>(index)].state.finished(); }
  // All texts are complete and the answer is sent.
  bool done() const { return done_; }
  // Ends the answer with an error; does nothing where it is done.
  void Fail(int status, const std::string& message, const std::string& param = "");

  Clock::time_point begin() const { return begin_; }
  // The status of the answer; 0 where there is none yet.
  int status() const { return status_; }
  Exchange& exchange() { return *exchange_; }

  // When the last token of a choice came.
  std::optional<Clock::time_point>& last_token(int index) {
    return choices_[static_cast<size_t>(index)].last_token;
  }

 private:
  struct ChoiceState {
    Choice state;
    ChoiceDelta collected;  // where nothing is streamed
    bool streamed = false;
    std::optional<Clock::time_point> last_token;
  };

  const Prompt& PromptOf(int index) const {
    return request_.prompts[static_cast<size_t>(index / request_.n)];
  }
  Usage CountUsage() const;
  void StartStream();
  void Complete();

  std::shared_ptr<Exchange> exchange_;
  const CompletionRequest request_;
  const LanguageModel model_;
  const HttpHeaders headers_;
  Clock::time_point begin_;
  uint64_t seed_;
  AnswerFormat format_;
  std::vector<ChoiceState> choices_;
  int accepted_ = 0;
  bool streaming_ = false, done_ = false;
  int status_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_COMPLETION_JOB_H_

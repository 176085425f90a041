#include "serve/choice.h"

#include <algorithm>
#include <utility>

#include "serve/utf8.h"

namespace denseformer {

void ChoiceDelta::Append(ChoiceDelta more) {
  text += more.text;
  std::move(more.tokens.begin(), more.tokens.end(), std::back_inserter(tokens));
  if (more.finish) finish = more.finish;
}

Choice::Choice(const Tokenizer& tokenizer, const CompletionRequest& request, const Prompt& prompt)
    : tokenizer_(tokenizer),
      request_(request),
      prompt_(prompt),
      recorded_(request.logprobs >= 0 || request.return_token_ids),
      stream_(request.stop) {}

void Choice::TakePrompt(ChoiceDelta& delta) {
  if (!request_.echo) return;
  delta.text = ValidUtf8(prompt_.text);
  CharacterCursor cursor(prompt_.text, 0);
  size_t begin = 0;  // beyond the text for an empty prompt: an end-of-text token without text
  for (size_t n = 0; recorded_ && n < prompt_.tokens.size(); ++n) {
    const int32_t id = prompt_.tokens[n];
    TokenRecord record{{.chosen = {.id = id}, .likeliest = {}}, false, cursor.MoveTo(begin)};
    begin += tokenizer_.TokenBytes(id).size();
    if (n > 0 && n <= prompt_logprobs_.size()) {
      record.token = std::move(prompt_logprobs_[n - 1]);
      record.known = true;
    }
    delta.tokens.push_back(std::move(record));
  }
  prompt_logprobs_ = {};
  characters_ = cursor.MoveTo(prompt_.text.size());
}

std::string Choice::TakeToken(const EngineEvent& event) {
  const int32_t id = event.token->chosen.id;
  ++completion_tokens_;
  const bool end = event.finish == FinishReason::kEndOfText;
  const std::string_view bytes = end ? std::string_view() : tokenizer_.TokenBytes(id);
  if (recorded_) held_.push_back({{*event.token, true, 0}, bytes_});
  bytes_ += bytes.size();
  return stream_.Add(bytes);
}

void Choice::Release(std::string_view piece) {
  CharacterCursor cursor(piece, characters_);
  for (Held& held : held_) held.record.offset = cursor.MoveTo(held.begin - released_);
  characters_ = cursor.MoveTo(piece.size());
  released_ += piece.size();
}

ChoiceDelta Choice::Take(EngineEvent event) {
  ChoiceDelta delta;
  if (finished_) return delta;
  std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(),
            std::back_inserter(prompt_logprobs_));
  if (!event.token && !event.finish) return delta;
  if (!std::exchange(begun_, true)) TakePrompt(delta);
  std::string piece;
  if (event.token) piece = TakeToken(event);
  delta.finish = event.finish;
  if (stream_.stopped()) {
    delta.finish = FinishReason::kStop;
  } else if (delta.finish) {
    piece += stream_.Finish();
  }
  Release(piece);
  delta.text += ValidUtf8(piece);
  // At the end all tokens are certain, but for those that a stop string took back.
  const size_t certain = delta.finish && !stream_.stopped() ? SIZE_MAX : released_;
  const auto rest = std::find_if(held_.begin(), held_.end(),
                                 [&](const Held& held) { return held.begin >= certain; });
  for (auto held = held_.begin(); held != rest; ++held) {
    delta.tokens.push_back(std::move(held->record));
  }
  held_.erase(held_.begin(), rest);
  finished_ = delta.finish.has_value();
  return delta;
}

}  // namespace denseformer

#include "serve/completion_job.h"

#include <algorithm>
#include <random>
#include <utility>

#include "serve/request_error.h"

namespace denseformer {
namespace {

uint64_t RandomSeed() {
  static std::random_device device;
  return device();
}

}  // namespace

CompletionJob::CompletionJob(std::shared_ptr<Exchange> exchange, CompletionRequest request,
                             LanguageModel model, const std::string& model_name,
                             HttpHeaders headers, Clock::time_point begin)
    : exchange_(std::move(exchange)),
      request_(std::move(request)),
      model_(std::move(model)),
      headers_(std::move(headers)),
      begin_(begin),
      seed_(request_.seed ? *request_.seed : RandomSeed()),
      format_(model_.tokenizer(), request_, model_name, seed_) {
  for (const Prompt& prompt : request_.prompts) {
    for (int k = 0; k < request_.n; ++k) {
      choices_.push_back({Choice(model_.tokenizer(), request_, prompt), {}, false, {}});
    }
  }
}

SequenceRequest CompletionJob::Sequence(int index) const {
  SequenceRequest sequence;
  sequence.prompt = PromptOf(index).tokens;
  sequence.sampling = request_.sampling;
  // Not by the number of the sample, so that a client gets choice k alone with a seed of its own.
  sequence.sampling.seed = seed_ + static_cast<uint64_t>(index % request_.n);
  sequence.max_tokens = PromptOf(index).max_tokens;
  sequence.stop_at_end_of_text = !request_.ignore_eos;
  sequence.logprobs = request_.logprobs;
  sequence.prompt_logprobs = request_.echo ? request_.logprobs : -1;
  sequence.context = request_.context;
  return sequence;
}

int64_t CompletionJob::most_tokens() const {
  int64_t tokens = 0;
  for (int index = 0; index < choices(); ++index) {
    const Prompt& prompt = PromptOf(index);
    tokens += static_cast<int64_t>(prompt.tokens.size()) + prompt.max_tokens;
  }
  return tokens;
}

int64_t CompletionJob::most_bytes() const { return AnswerBytes(request_); }

void CompletionJob::Accepted() {
  if (++accepted_ == choices() && request_.stream && !done_) StartStream();
}

// Once all choices are accepted, or with the first token where that comes before.
void CompletionJob::StartStream() {
  if (std::exchange(streaming_, true)) return;
  status_ = 200;
  HttpResponse head{
      .content_type = "text/event-stream; charset=utf-8", .body = "", .headers = headers_};
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would wait for more
  head.filler = ":\n\n";                                 // a comment
  exchange_->StartStream(std::move(head));
}

void CompletionJob::Take(int index, EngineEvent event) {
  if (done_) return;
  if (event.finish == FinishReason::kFailed) return Fail(500, event.error);
  ChoiceState& choice = choices_[static_cast<size_t>(index)];
  ChoiceDelta delta = choice.state.Take(std::move(event));
  if (delta.empty()) return;
  if (request_.stream) {
    StartStream();
    const bool first = !std::exchange(choice.streamed, true);
    exchange_->Write(format_.Chunk(index, delta, first, request_.include_usage),
                     /*at_once=*/first && request_.echo);
  } else {
    choice.collected.Append(std::move(delta));
  }
  const bool complete = std::all_of(choices_.begin(), choices_.end(),
                                    [](const ChoiceState& c) { return c.state.finished(); });
  if (complete) Complete();
}

Usage CompletionJob::CountUsage() const {
  Usage usage;
  for (const Prompt& prompt : request_.prompts) {
    usage.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  }
  for (const ChoiceState& choice : choices_) {
    usage.completion_tokens += choice.state.completion_tokens();
  }
  return usage;
}

void CompletionJob::Complete() {
  done_ = true;
  status_ = 200;
  if (request_.stream) {
    if (request_.include_usage) exchange_->Write(format_.UsageChunk(CountUsage()));
    exchange_->Write(AnswerFormat::Done());
    exchange_->End();
    return;
  }
  std::vector<ChoiceDelta> collected;
  for (ChoiceState& choice : choices_) collected.push_back(std::move(choice.collected));
  exchange_->Send({.body = format_.Whole(std::move(collected), CountUsage()), .headers = headers_});
}

void CompletionJob::Fail(int status, const std::string& message, const std::string& param) {
  if (std::exchange(done_, true)) return;
  if (streaming_) {
    exchange_->Write(AnswerFormat::ErrorEvent(ErrorBody(status, message, param)));
    exchange_->Write(AnswerFormat::Done());
    exchange_->End();
    return;
  }
  status_ = status;
  HttpResponse response = ErrorResponse(status, message, param);
  response.headers = headers_;
  exchange_->Send(std::move(response));
}

}  // namespace denseformer

#include "serve/job_queue.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

using Clock = CompletionJob::Clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

void CheckLimit(const char* what, int64_t already, int64_t more, int64_t most) {
  if (more > most) {
    throw RequestError(
        400, "",
        fmt::format("request of {} {}, but this server takes {} at a time", more, what, most));
  }
  if (already + more > most) {
    throw RequestError(
        429, "",
        fmt::format("the queue is full: {} {} of {}; try again later", already, what, most));
  }
}

}  // namespace

void JobQueue::Submit(std::shared_ptr<CompletionJob> job) {
  CheckLimit("sequences", sequences_, job->choices(), limits_.max_sequences);
  CheckLimit("tokens", tokens_, job->most_tokens(), limits_.max_tokens);
  if (!http_.Reserve(static_cast<size_t>(job->most_bytes()))) {
    throw RequestError(503, "",
                       fmt::format("the answer may take {} bytes of memory, more than the server "
                                   "has left for answers; try again later",
                                   job->most_bytes()));
  }
  sequences_ += job->choices();
  tokens_ += job->most_tokens();
  jobs_.insert(job);
  for (int index = 0; index < job->choices(); ++index) {
    const SequenceKey key = next_key_++;
    job->keys.push_back(key);
    places_[key] = {job, index};
    engine_.Submit(key, job->Sequence(index));
  }
  job->exchange().OnClose([this, weak = std::weak_ptr<CompletionJob>(job)] {
    if (const std::shared_ptr<CompletionJob> gone = weak.lock()) GiveUp(gone, "disconnect");
  });
}

void JobQueue::Update(EngineUpdate update) {
  const EngineStats& stats = update.stats;
  metrics_.Set(Metric::kSequencesRunning, stats.running);
  metrics_.Set(Metric::kSequencesWaiting, stats.waiting);
  metrics_.Set(Metric::kCacheBytes, static_cast<double>(stats.cache_bytes));
  metrics_.Set(Metric::kCacheLimitBytes, static_cast<double>(stats.cache_limit_bytes));
  metrics_.Set(Metric::kPromptTokens, static_cast<double>(stats.prompt_tokens));
  metrics_.Set(Metric::kReusedTokens, static_cast<double>(stats.reused_tokens));
  metrics_.Set(Metric::kGeneratedTokens, static_cast<double>(stats.generated_tokens));
  metrics_.Set(Metric::kSteps, static_cast<double>(stats.steps));
  // A sequence may be gone meanwhile: its client left, or its text is complete.
  const auto find = [&](SequenceKey key) {
    const auto found = places_.find(key);
    return found == places_.end() ? std::optional<Place>() : found->second;
  };
  for (const SequenceKey key : update.accepted) {
    if (const auto place = find(key)) place->job->Accepted();
  }
  for (const EngineUpdate::Refusal& refusal : update.refused) {
    if (const auto place = find(refusal.key)) {
      place->job->Fail(HttpStatus(refusal.error.code()), refusal.error.what());
      Remove(place->job);
    }
  }
  const Clock::time_point now = http_.now();
  for (const SequenceKey key : update.started) {
    if (const auto place = find(key)) {
      metrics_.Observe(Metric::kQueueSeconds, Seconds(now - place->job->begin()));
    }
  }
  for (EngineUpdate::Event& event : update.events) {
    if (const auto place = find(event.key)) TakeEvent(*place, event.key, std::move(event.event));
  }
}

void JobQueue::TakeEvent(const Place& place, SequenceKey key, EngineEvent event) {
  CompletionJob& job = *place.job;
  const bool ended = event.finish.has_value();
  if (event.token) {
    const Clock::time_point now = http_.now();
    std::optional<Clock::time_point>& last = job.last_token(place.index);
    if (last) {
      metrics_.Observe(Metric::kInterTokenSeconds, Seconds(now - *last));
    } else {
      metrics_.Observe(Metric::kFirstTokenSeconds, Seconds(now - job.begin()));
    }
    last = now;
  }
  job.Take(place.index, std::move(event));
  if (ended || job.finished(place.index)) {
    if (!ended) engine_.Cancel(key);
    places_.erase(key);
  }
  if (!job.done()) return;
  const double seconds = Seconds(http_.now() - job.begin());
  metrics_.Observe(Metric::kRequestSeconds, seconds);
  usual_seconds_ += 0.1 * (seconds - usual_seconds_);
  Remove(place.job);
}

void JobQueue::Remove(const std::shared_ptr<CompletionJob>& job) {
  const std::shared_ptr<CompletionJob> kept = job;
  if (jobs_.erase(kept) == 0) return;
  if (kept->status() != 0) metrics_.Add(Metric::kResponses, 1, std::to_string(kept->status()));
  sequences_ -= kept->choices();
  tokens_ -= kept->most_tokens();
  http_.Release(static_cast<size_t>(kept->most_bytes()));
  for (const SequenceKey key : kept->keys) {
    if (places_.erase(key) > 0) engine_.Cancel(key);
  }
}

void JobQueue::GiveUp(const std::shared_ptr<CompletionJob>& job, const std::string& reason) {
  if (!jobs_.contains(job)) return;
  metrics_.Add(Metric::kCancelled, 1, reason);
  Remove(job);
}

void JobQueue::CheckTime(Clock::time_point now) {
  if (limits_.request_seconds == 0) return;
  const std::vector<std::shared_ptr<CompletionJob>> all(jobs_.begin(), jobs_.end());
  for (const std::shared_ptr<CompletionJob>& job : all) {
    if (Seconds(now - job->begin()) <= limits_.request_seconds) continue;
    job->Fail(504, fmt::format("the request took longer than {} seconds", limits_.request_seconds));
    GiveUp(job, "timeout");
  }
}

void JobQueue::FailAll(int status, const std::string& message, const std::string& reason) {
  const std::vector<std::shared_ptr<CompletionJob>> all(jobs_.begin(), jobs_.end());
  for (const std::shared_ptr<CompletionJob>& job : all) {
    job->Fail(status, message);
    GiveUp(job, reason);
  }
}

int JobQueue::RetryAfter() const {
  return static_cast<int>(std::clamp(std::ceil(usual_seconds_), 1.0, 60.0));
}

}  // namespace denseformer

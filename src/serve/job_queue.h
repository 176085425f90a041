// Requests for completions that are accepted and not finished: limits, events, cancellation, time.
// On the I/O thread only.
#ifndef DENSEFORMER_SERVE_JOB_QUEUE_H_
#define DENSEFORMER_SERVE_JOB_QUEUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "serve/completion_job.h"
#include "serve/engine_thread.h"
#include "serve/http_server.h"
#include "serve/metrics.h"

namespace denseformer {

struct QueueLimits {
  int max_sequences = 1024;        // running and waiting
  int64_t max_tokens = 4'000'000;  // prompts and texts of all of them at their longest
  double request_seconds = 600;    // for one request; 0: no limit
};

class JobQueue {
 public:
  // The references must outlive it.
  JobQueue(const QueueLimits& limits, Metrics& metrics, EngineThread& engine, HttpServer& http)
      : limits_(limits), metrics_(metrics), engine_(engine), http_(http) {}

  // Throws RequestError: 429 where there is no room now, 503 where there is no memory for the
  // answer now, 400 where there never will be.
  void Submit(std::shared_ptr<CompletionJob> job);

  void Update(EngineUpdate update);
  // Ends requests that exceed their time.
  void CheckTime(CompletionJob::Clock::time_point now);
  // Ends all of them; `reason` is for the metrics.
  void FailAll(int status, const std::string& message, const std::string& reason);

  bool empty() const { return jobs_.empty(); }
  // Seconds after which a client may try again: about one request's time.
  int RetryAfter() const;

 private:
  struct Place {
    std::shared_ptr<CompletionJob> job;
    int index;
  };

  void TakeEvent(const Place& place, SequenceKey key, EngineEvent event);
  // Takes a job out; cancels what the engine still does for it.
  void Remove(const std::shared_ptr<CompletionJob>& job);
  void GiveUp(const std::shared_ptr<CompletionJob>& job, const std::string& reason);

  const QueueLimits limits_;
  Metrics& metrics_;
  EngineThread& engine_;
  HttpServer& http_;
  SequenceKey next_key_ = 1;
  std::map<SequenceKey, Place> places_;  // sequences that the engine has
  std::set<std::shared_ptr<CompletionJob>> jobs_;
  int64_t sequences_ = 0, tokens_ = 0;  // of all jobs
  double usual_seconds_ = 1;            // that a request takes, a moving average
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_JOB_QUEUE_H_

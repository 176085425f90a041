// The routes of the server, and its life: loading, serving, draining.
#ifndef DENSEFORMER_SERVE_SERVICE_H_
#define DENSEFORMER_SERVE_SERVICE_H_

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "denseformer/error.h"
#include "denseformer/model.h"
#include "serve/engine_thread.h"
#include "serve/http_server.h"
#include "serve/job_queue.h"
#include "serve/metrics.h"
#include "serve/serve_options.h"

namespace denseformer {

class Service;

// One row of the table of routes.
struct Route {
  const char* method;
  const char* path;
  unsigned flags;  // of RouteFlag
  const char* help;
  // Answers, now or later. Throws Error, which becomes the answer.
  void (Service::*handle)(const std::shared_ptr<Exchange>& exchange);
};

enum RouteFlag : unsigned {
  kPublic = 1,  // needs no API key
  kModel = 2,   // needs the model: 503 while it is loaded
  kWork = 4,    // 503 while draining
};

// In the order of the documents.
std::span<const Route> Routes();

// On the I/O thread only, but for the constructor.
class Service {
 public:
  // Starts the engine's thread and takes the callbacks of `http`, which must outlive it.
  Service(ServeOptions options, HttpServer& http);
  ~Service();

  // Finishes what is in work and refuses what is new; then, or when the time is over, the HTTP
  // server stops. Called again, it stops at once.
  void Drain();

  // What ended the service, if it was a failure.
  const std::optional<Error>& failure() const { return failure_; }

  // Handlers of the routes.
  void Completions(const std::shared_ptr<Exchange>& exchange);
  void Chat(const std::shared_ptr<Exchange>& exchange);
  void Models(const std::shared_ptr<Exchange>& exchange);
  void Tokenize(const std::shared_ptr<Exchange>& exchange);
  void Detokenize(const std::shared_ptr<Exchange>& exchange);
  void TokenizerInfo(const std::shared_ptr<Exchange>& exchange);
  void Health(const std::shared_ptr<Exchange>& exchange);
  void ShowMetrics(const std::shared_ptr<Exchange>& exchange);
  void OpenApi(const std::shared_ptr<Exchange>& exchange);
  void Depth(const std::shared_ptr<Exchange>& exchange);
  void Page(const std::shared_ptr<Exchange>& exchange);

 private:
  using Clock = std::chrono::steady_clock;

  void StartEngine();
  void OnSignal(int signal);
  bool HostAllowed(const HttpRequest& request) const;
  void Handle(const std::shared_ptr<Exchange>& exchange);
  void Dispatch(const Route& route, const std::shared_ptr<Exchange>& exchange);
  const Route* FindRoute(const HttpRequest& request, std::string& allowed) const;
  void Reply(const std::shared_ptr<Exchange>& exchange, HttpResponse response);
  void Refuse(const std::shared_ptr<Exchange>& exchange, const std::string& message,
              const char* reason);
  void Complete(const std::shared_ptr<Exchange>& exchange, bool chat);
  void CheckModelName(const std::string& name) const;
  void Tick();
  Json ModelJson() const;

  const ServeOptions options_;
  HttpServer& http_;
  Metrics metrics_;
  std::optional<LanguageModel> model_;  // once it is loaded
  int64_t started_ = 0;                 // seconds since 1970
  std::optional<Clock::time_point> drain_until_;
  std::optional<Error> failure_;
  int depth_views_ = 0;  // under way
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<JobQueue> queue_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_SERVICE_H_

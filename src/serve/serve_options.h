// Everything that can be set of a server.
#ifndef DENSEFORMER_SERVE_SERVE_OPTIONS_H_
#define DENSEFORMER_SERVE_SERVE_OPTIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "denseformer/engine.h"
#include "serve/chat_template.h"
#include "serve/completion_request.h"
#include "serve/http_server.h"
#include "serve/job_queue.h"

namespace denseformer {

struct ServeOptions {
  std::function<LanguageModel()> load;  // called on the engine's thread
  std::string model_name;
  HttpOptions http;
  EngineOptions engine;
  RequestLimits request;
  QueueLimits queue;
  double drain_seconds = 30;          // after SIGTERM, for requests in work
  std::vector<std::string> api_keys;  // none: no key is asked for
  std::string cors_origin;
  // Further names under which a server on loopback is asked, beside localhost and addresses.
  // Without keys it refuses all others: a page of another site could have its name resolve to
  // loopback.
  std::vector<std::string> allowed_hosts;
  std::optional<ChatTemplate> chat;
  // SIGINT and SIGTERM drain; the second one, or one while the model is loaded, ends the process.
  bool catch_signals = false;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_SERVE_OPTIONS_H_

#include "serve/service.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "serve/access.h"
#include "serve/depth_endpoint.h"
#include "serve/openapi.h"
#include "serve/page_assets.h"
#include "serve/request_error.h"
#include "serve/tokenize.h"

namespace denseformer {
namespace {

// Of the time of a drain, for the last answers: one second, at most half of it.
constexpr double kFlushSeconds = 1, kFlushShare = 0.5;

constexpr std::string_view kModels = "/v1/models/";
constexpr const char* kOneModel = "/v1/models/{id}";

constexpr Route kRoutes[] = {
    {"POST", "/v1/completions", kModel | kWork, "Continue texts", &Service::Completions},
    {"POST", "/v1/chat/completions", kModel | kWork,
     "Continue a conversation, where the server has a chat template", &Service::Chat},
    {"GET", "/v1/models", kModel, "The served model", &Service::Models},
    {"GET", kOneModel, kModel, "The same, by its name", &Service::Models},
    {"POST", "/tokenize", kModel, "Text to token ids", &Service::Tokenize},
    {"POST", "/detokenize", kModel, "Token ids to text", &Service::Detokenize},
    {"GET", "/tokenizer_info", kModel, "What the tokenizer is", &Service::TokenizerInfo},
    {"POST", "/depth", kModel | kWork,
     "What every module reads, and what every depth predicts, at one token", &Service::Depth},
    {"GET", "/health", kPublic, "200 where requests are served, 503 while loading or draining",
     &Service::Health},
    {"GET", "/metrics", 0, "Counters in Prometheus' text format", &Service::ShowMetrics},
    {"GET", "/openapi.json", 0, "This interface as an OpenAPI document", &Service::OpenApi},
    {"GET", "/", kPublic, "The page for the browser", &Service::Page},
    {"GET", "/page.css", kPublic, "Its style sheet", &Service::Page},
    {"GET", "/page.js", kPublic, "Its script", &Service::Page},
};

// What the page may load: nothing from elsewhere.
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr int kMostDepthViews = 8;  // under way at the same time

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

Service::Service(ServeOptions options, HttpServer& http)
    : options_(std::move(options)), http_(http) {
  started_ = std::chrono::duration_cast<std::chrono::seconds>(
                 std::chrono::system_clock::now().time_since_epoch())
                 .count();
  http_.on_request = [this](const std::shared_ptr<Exchange>& exchange) { Handle(exchange); };
  http_.on_tick = [this] { Tick(); };
  if (options_.catch_signals) http_.on_signal = [this](int signal) { OnSignal(signal); };
  http_.on_error = [this](int status, const std::string& message) {
    metrics_.Add(Metric::kResponses, 1, std::to_string(status));
    HttpResponse response = ErrorResponse(status, message);
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
  };
  StartEngine();
}

// Its thread posts to the I/O thread, which runs nothing more of it.
Service::~Service() { engine_.reset(); }

void Service::StartEngine() {
  EngineThread::Callbacks callbacks;
  callbacks.load = options_.load;
  callbacks.ready = [this](const LanguageModel& model) {
    http_.Post([this, model] {
      model_ = model;
      LogInfo("ready: {} with {} parameters, context of {} tokens", options_.model_name,
              model.parameter_count(), model.config().seq_len);
    });
  };
  callbacks.update = [this](EngineUpdate update) {
    http_.Post([this, shared = std::make_shared<EngineUpdate>(std::move(update))] {
      engine_->Acknowledge();
      queue_->Update(std::move(*shared));
    });
  };
  callbacks.failed = [this](const Error& error) {
    http_.Post([this, error] {
      failure_ = error;
      queue_->FailAll(500, error.what(), "failure");
      http_.Stop();
    });
  };
  engine_ = std::make_unique<EngineThread>(options_.engine, std::move(callbacks));
  queue_ = std::make_unique<JobQueue>(options_.queue, metrics_, *engine_, http_);
}

const Route* Service::FindRoute(const HttpRequest& request, std::string& allowed) const {
  const bool one_model = request.path == "/v1/models/" + options_.model_name;
  const std::string& path = one_model ? kOneModel : request.path;
  for (const Route& route : kRoutes) {
    if (path != route.path) continue;
    if (request.method == route.method) return &route;
    allowed = route.method == std::string_view("GET") ? "GET, HEAD" : route.method;
  }
  return nullptr;
}

bool Service::HostAllowed(const HttpRequest& request) const {
  const bool open = options_.api_keys.empty() && IsLoopbackHost(options_.http.host);
  return !open || HasLocalHost(request, options_.allowed_hosts);
}

void Service::Handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.method == "OPTIONS" && !CorsHeaders(request, options_.cors_origin).empty()) {
    return Reply(exchange, {.status = 204, .content_type = "", .body = ""});
  }
  try {
    std::string allowed;
    const Route* route = FindRoute(request, allowed);
    // Without a key nobody learns which paths there are.
    if ((route == nullptr || (route->flags & kPublic) == 0) &&
        !HasApiKey(request, options_.api_keys)) {
      HttpResponse response =
          ErrorResponse(401, "Authorization: expected 'Bearer' and a key of this server");
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return Reply(exchange, std::move(response));
    }
    if ((route == nullptr || (route->flags & kPublic) == 0) && !HostAllowed(request)) {
      throw RequestError(
          403, "",
          fmt::format("Host: got '{}', expected localhost or an address of loopback; start the "
                      "server with --allow-host or with --api-key-file",
                      request.Header("host")));
    }
    if (request.method == "POST" && options_.api_keys.empty() &&
        IsFromOtherSite(request, options_.cors_origin)) {
      throw RequestError(403, "",
                         "Sec-Fetch-Site: the request comes from a page of another site; start the "
                         "server with --cors-origin to allow it");
    }
    if (route != nullptr) return Dispatch(*route, exchange);
    if (request.method == "GET" && request.path.starts_with(kModels)) {
      CheckModelName(request.path.substr(kModels.size()));
    }
    if (allowed.empty()) {
      throw RequestError(404, "",
                         fmt::format("no such path: {}; /openapi.json lists them", request.path));
    }
    HttpResponse response = ErrorResponse(
        405, fmt::format("{}: got {}, expected {}", request.path, request.method, allowed));
    response.headers.emplace_back("Allow", allowed);
    Reply(exchange, std::move(response));
  } catch (const RequestError& error) {
    HttpResponse response = ErrorResponse(error.status(), error.what(), error.param());
    if (error.status() == 429 || error.status() == 503) {
      metrics_.Add(Metric::kRejected, 1, error.status() == 429 ? "queue" : "buffers");
      response.headers.emplace_back("Retry-After", std::to_string(queue_->RetryAfter()));
    }
    Reply(exchange, std::move(response));
  } catch (const Error& error) {
    Reply(exchange, ErrorResponse(HttpStatus(error.code()), error.what()));
  }
}

void Service::Dispatch(const Route& route, const std::shared_ptr<Exchange>& exchange) {
  if ((route.flags & kWork) != 0 && drain_until_) {
    return Refuse(exchange, "the server is shutting down", "draining");
  }
  if ((route.flags & kModel) != 0 && !model_) {
    return Refuse(exchange, "the model is being loaded", "loading");
  }
  if ((route.flags & kWork) != 0 && http_.buffered_bytes() > options_.http.max_buffered_bytes) {
    return Refuse(exchange, "clients have not taken what others were answered; try again later",
                  "buffers");
  }
  (this->*route.handle)(exchange);
}

void Service::Reply(const std::shared_ptr<Exchange>& exchange, HttpResponse response) {
  metrics_.Add(Metric::kResponses, 1, std::to_string(response.status));
  HttpHeaders cors = CorsHeaders(exchange->request(), options_.cors_origin);
  std::move(cors.begin(), cors.end(), std::back_inserter(response.headers));
  exchange->Send(std::move(response));
}

void Service::Refuse(const std::shared_ptr<Exchange>& exchange, const std::string& message,
                     const char* reason) {
  metrics_.Add(Metric::kRejected, 1, reason);
  HttpResponse response = ErrorResponse(503, message);
  response.headers.emplace_back("Retry-After", "1");
  Reply(exchange, std::move(response));
}

void Service::CheckModelName(const std::string& name) const {
  if (name.empty() || name == options_.model_name) return;
  throw RequestError(
      404, "model",
      fmt::format("model: '{}' is not served, only '{}'", Shortened(name), options_.model_name));
}

void Service::Complete(const std::shared_ptr<Exchange>& exchange, bool chat) {
  const Clock::time_point begin = http_.now();
  CompletionRequest request =
      ParseCompletion(ParseBody(exchange->request().body), chat, options_.request);
  CheckModelName(request.model);
  EncodePrompts(model_->tokenizer(), options_.chat ? &*options_.chat : nullptr,
                model_->config().seq_len, options_.request, request);
  const int64_t bytes = AnswerBytes(request);
  if (static_cast<size_t>(bytes) > options_.http.max_buffered_bytes) {
    throw RequestError(
        400, "",
        fmt::format("the answer may take {} bytes of memory, but this server has {} for all "
                    "answers; ask for fewer tokens, texts or logprobs{}",
                    bytes, options_.http.max_buffered_bytes, request.stream ? "" : ", or stream"));
  }
  queue_->Submit(std::make_shared<CompletionJob>(
      exchange, std::move(request), *model_, options_.model_name,
      CorsHeaders(exchange->request(), options_.cors_origin), begin));
}

void Service::Completions(const std::shared_ptr<Exchange>& exchange) { Complete(exchange, false); }

void Service::Chat(const std::shared_ptr<Exchange>& exchange) { Complete(exchange, true); }

Json Service::ModelJson() const {
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "denseformer"},
          {"max_model_len", model_->config().seq_len},
          {"max_logprobs", options_.request.max_logprobs},
          {"parameters", model_->parameter_count()},
          {"dwa", model_->config().dwa}};
}

void Service::Models(const std::shared_ptr<Exchange>& exchange) {
  const bool list = exchange->request().path == "/v1/models";
  Json json = ModelJson();
  if (list) json = {{"object", "list"}, {"data", Json::array({std::move(json)})}};
  Reply(exchange, {.body = ToText(json)});
}

void Service::Tokenize(const std::shared_ptr<Exchange>& exchange) {
  Reply(exchange, {.body = ToText(TokenizeAnswer(*model_, ParseBody(exchange->request().body)))});
}

void Service::Detokenize(const std::shared_ptr<Exchange>& exchange) {
  Reply(exchange, {.body = ToText(DetokenizeAnswer(*model_, ParseBody(exchange->request().body)))});
}

void Service::TokenizerInfo(const std::shared_ptr<Exchange>& exchange) {
  Reply(exchange, {.body = ToText(TokenizerInfoAnswer(*model_))});
}

void Service::Health(const std::shared_ptr<Exchange>& exchange) {
  const char* state = drain_until_ ? "draining" : model_ ? "ok" : "loading";
  const int status = model_ && !drain_until_ ? 200 : 503;
  Reply(exchange, {.status = status, .body = ToText({{"status", state}})});
}

void Service::ShowMetrics(const std::shared_ptr<Exchange>& exchange) {
  metrics_.Set(Metric::kConnections, static_cast<double>(http_.connections()));
  metrics_.Set(Metric::kUnsentBytes, static_cast<double>(http_.unsent_bytes()));
  metrics_.Set(Metric::kReservedBytes, static_cast<double>(http_.reserved_bytes()));
  metrics_.Set(Metric::kBufferedBytes, static_cast<double>(http_.buffered_bytes()));
  metrics_.Set(Metric::kResidentBytes, static_cast<double>(ResidentMemory()));
  Reply(exchange,
        {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.ToText()});
}

void Service::OpenApi(const std::shared_ptr<Exchange>& exchange) {
  Reply(exchange, {.body = ToText(OpenApiDocument(options_))});
}

// Between two steps of the engine, on its thread: it costs about as much as a prompt.
void Service::Depth(const std::shared_ptr<Exchange>& exchange) {
  const DepthRequest request = ParseDepth(*model_, ParseBody(exchange->request().body));
  if (depth_views_ >= kMostDepthViews) {
    throw RequestError(429, "", fmt::format("{} views are under way already", depth_views_));
  }
  ++depth_views_;
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange->OnClose([gone] { *gone = true; });
  engine_->Call([this, exchange, gone, request, model = *model_] {
    HttpResponse response;
    try {
      if (!*gone) response.body = ToText(DepthAnswer(model, request));
    } catch (const Error& error) {
      response = ErrorResponse(HttpStatus(error.code()), error.what());
    }
    http_.Post([this, exchange, response = std::move(response)] {
      --depth_views_;
      Reply(exchange, response);
    });
  });
}

void Service::Page(const std::shared_ptr<Exchange>& exchange) {
  const std::string& path = exchange->request().path;
  const bool style = path == "/page.css", script = path == "/page.js";
  HttpResponse response;
  response.content_type = style    ? "text/css; charset=utf-8"
                          : script ? "text/javascript; charset=utf-8"
                                   : "text/html; charset=utf-8";
  response.body = style ? kPageStyle : script ? kPageScript : kPageHtml;
  response.headers = {{"Content-Security-Policy", kPagePolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
  Reply(exchange, std::move(response));
}

void Service::Drain() {
  if (drain_until_) {
    queue_->FailAll(503, "the server is shutting down", "shutdown");
    http_.Stop();
    return;
  }
  LogInfo("draining: finishing what is in work, for at most {} seconds", options_.drain_seconds);
  drain_until_ = http_.now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(options_.drain_seconds));
}

// Neither loading nor a step can be interrupted: a signal that must not wait for them does what it
// does to a program that does not catch it.
void Service::OnSignal(int signal) {
  if (model_ && !drain_until_) return Drain();
  LogInfo("ended by a signal {}", model_ ? "while draining" : "while the model was being loaded");
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Service::Tick() {
  const Clock::time_point now = http_.now();
  queue_->CheckTime(now);
  if (!drain_until_) return;
  const double left = std::chrono::duration<double>(*drain_until_ - now).count();
  if (left <= std::min(kFlushSeconds, kFlushShare * options_.drain_seconds) && !queue_->empty()) {
    LogWarning("serve: requests were still in work at the end of {} seconds of draining",
               options_.drain_seconds);
    queue_->FailAll(503, "the server is shutting down", "shutdown");
  }
  const bool finished = queue_->empty() && depth_views_ == 0 && http_.unsent_bytes() == 0;
  if (finished || left <= 0) http_.Stop();
}

}  // namespace denseformer

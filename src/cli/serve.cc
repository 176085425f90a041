// denseformer serve: a trained model behind OpenAI's HTTP interface.
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "serve/access.h"
#include "serve/http.h"
#include "serve/server.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

struct Options {
  std::string run;
  std::string precision = "auto";
  std::string api_key_file, chat_template;
  int64_t memory_mib = 0;
  int64_t max_body_kib = 4096, max_output_kib = 256, max_buffered_mib = 256;
  int64_t min_read_kib = 16;
  ServeOptions serve;
};

void Serve(const Options& given) {
  ServeOptions serve = given.serve;
  if (serve.model_name.empty()) {
    serve.model_name = std::filesystem::weakly_canonical(given.run).filename().string();
  }
  serve.engine.memory_bytes = given.memory_mib << 20;
  serve.http.max_body_bytes = static_cast<size_t>(given.max_body_kib) << 10;
  serve.http.max_output_bytes = static_cast<size_t>(given.max_output_kib) << 10;
  serve.http.max_buffered_bytes = static_cast<size_t>(given.max_buffered_mib) << 20;
  serve.http.min_bytes_per_second = static_cast<double>(given.min_read_kib << 10);
  if (!given.api_key_file.empty()) {
    serve.api_keys = ParseApiKeys(ReadFile(given.api_key_file), given.api_key_file);
  }
  if (!given.chat_template.empty()) {
    serve.chat = ChatTemplate::Parse(ReadFile(given.chat_template), given.chat_template);
  }
  const Precision precision = ParsePrecision(given.precision);
  serve.load = [run = given.run, precision] { return LanguageModel::Load(run, precision); };
  serve.catch_signals = true;
  Server server(serve);
  LogInfo("serving {} on http://{} (Ctrl-C or SIGTERM ends it)", serve.model_name,
          HttpAuthority(serve.http.host, server.port()));
  server.Run();
  LogInfo("ended");
}

void AddLimits(CLI::App& app, Options& o) {
  const char* group = "Limits";
  const auto whole = [&](const char* name, auto& value, int64_t low, int64_t high,
                         const char* help) {
    app.add_option(name, value, help)
        ->check(WholeNumber(low, high))
        ->capture_default_str()
        ->group(group);
  };
  const auto seconds = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->check(Number(0, 1e6))->capture_default_str()->group(group);
  };
  ServeOptions& s = o.serve;
  whole("--max-running", s.engine.max_sequences, 1, 1 << 16, "Texts generated at the same time");
  whole("--max-rows", s.engine.max_rows, 1, 1 << 16, "Tokens per step of the engine");
  whole("--max-sequences", s.queue.max_sequences, 1, 1 << 20,
        "Texts accepted, generated and waiting; more are answered with 429");
  whole("--max-queue-tokens", s.queue.max_tokens, 1, int64_t{1} << 40,
        "Tokens of all accepted texts, prompts included, at their longest; more: 429");
  whole("--max-tokens", s.request.max_tokens, 0, 1 << 30,
        "Longest text that a request may ask for; 0: what the context holds");
  whole("--max-choices", s.request.max_choices, 1, 1 << 16, "Prompts times n of one request");
  whole("--max-logprobs", s.request.max_logprobs, 0, 1 << 16,
        "Likeliest tokens that a request may ask for");
  whole("--memory", o.memory_mib, 0, int64_t{1} << 24,
        "MiB for keys, values and buffers; 0: enough for --max-running whole contexts");
  whole("--max-connections", s.http.max_connections, 1, 1 << 20, "Open connections");
  whole("--max-body", o.max_body_kib, 1, 1 << 20, "KiB of a request's body");
  whole("--max-output", o.max_output_kib, 16, 1 << 20,
        "KiB of a stream that a client may be behind before it is cut off");
  whole("--max-buffered", o.max_buffered_mib, 1, 1 << 20,
        "MiB of all bodies being received, answers not yet taken and answers in the making; more: "
        "503");
  seconds("--request-seconds", s.queue.request_seconds, "Longest time of a request; 0: any");
  seconds("--read-seconds", s.http.read_seconds,
          "Longest time to send a request; that of the first one begins with the connection");
  seconds("--write-seconds", s.http.write_seconds,
          "Longest time in which a client takes nothing of its answer");
  whole("--min-read", o.min_read_kib, 0, 1 << 20,
        "KiB per second that a client must take of a long answer; 0: any");
  seconds("--idle-seconds", s.http.idle_seconds, "Longest time between two requests");
  seconds("--drain-seconds", s.drain_seconds,
          "After SIGTERM, longest time to finish what is in work");
}

}  // namespace

void AddServe(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  ServeOptions& s = options->serve;
  app.add_option("RUN", options->run, "Run directory of a trained model")->required();
  app.add_option("--host", s.http.host, "Address to listen on; 0.0.0.0: every one of this machine")
      ->capture_default_str();
  app.add_option("--port", s.http.port, "Port; 0: any free one")
      ->check(WholeNumber(0, 65535))
      ->capture_default_str();
  app.add_option("--model-name", s.model_name, "Name for clients; default: that of the directory");
  app.add_option("--precision", options->precision, "auto, fp32, bf16 or int8")
      ->check(OneOf(InferencePrecisionNames()))
      ->capture_default_str();
  app.add_option("--api-key-file", options->api_key_file,
                 "Only clients with a key of this file, one per line");
  app.add_option("--cors-origin", s.cors_origin,
                 "Let web pages of this origin call; *: of any. Default: none");
  app.add_option(
         "--allow-host", s.allowed_hosts,
         "Another name of this machine under which a server on loopback answers; repeatable")
      ->allow_extra_args(false);
  app.add_option("--chat-template", options->chat_template,
                 "TOML file that makes a prompt of a chat, for /v1/chat/completions");
  AddLimits(app, *options);
  app.footer(
      "GET / is a page for the browser, /openapi.json the interface, /metrics for Prometheus.\n"
      "Examples:\n"
      "  denseformer serve runs/tiny\n"
      "  denseformer serve runs/tiny --port 9000 --api-key-file keys.txt --max-running 16\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"In the beginning\"}'");
  SetWork(app, common, options, [](const Options& o) { Serve(o); });
}

}  // namespace denseformer

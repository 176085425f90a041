// denseformer bench serve: loads a server on loopback and measures its answers.
#include "cli/bench_serve.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "chart/chart.h"
#include "cli/checks.h"
#include "cli/output.h"
#include "data/bpe.h"
#include "infer/language_model.h"
#include "perf/interleave.h"
#include "serve/access.h"
#include "serve/client.h"
#include "serve/load.h"
#include "serve/server.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

constexpr double kWarmUpSeconds = 60;  // in which its requests begin, whatever --seconds says

struct Options {
  std::string run, preset, dwa = "4x5", precision = "auto";
  std::string api_key_file, svg;
  std::string concurrency = "1,4,16", rates, parameters = "{}";
  int port = 0;
  int rounds = 1, warm_up = 0;
  LoadOptions load;
};

// All runs of one concurrency, or of one rate.
struct Measured {
  double value = 0;
  Timing timing;           // seconds per output token, one per round
  std::vector<Json> rows;  // as LoadRow
};

// A server of this process, for the time of the benchmark.
class OwnServer {
 public:
  explicit OwnServer(const ServeOptions& options) : server_(options), thread_([this] { Run(); }) {}
  ~OwnServer() { Stop(); }

  int port() const { return server_.port(); }

  // Waits until the model is loaded; throws what kept it from that.
  void Wait() {
    while (!Ready()) {
      if (ended_) std::rethrow_exception(failure_);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

 private:
  bool Ready() const {
    try {
      return HttpClient("127.0.0.1", port(), /*seconds=*/1).Call("GET", "/health").status == 200;
    } catch (const Error&) {
      return false;  // not yet, or it has ended
    }
  }
  void Run() {
    try {
      server_.Run();
    } catch (const Error&) {
      failure_ = std::current_exception();
      ended_ = true;
    }
  }
  void Stop() {
    server_.Drain();
    thread_.join();
  }

  Server server_;
  std::exception_ptr failure_;      // set before ended_
  std::atomic<bool> ended_{false};  // by a failure
  std::thread thread_;
};

// As many tokens as the model has, so that sampling looks at all of them.
Tokenizer NumberedTokens(int count) {
  TokenizerData data = Tokenizer::Bytes().data();
  while (std::ssize(data.tokens) < count) {
    data.tokens.push_back(fmt::format(" {}", data.tokens.size()));
  }
  return Tokenizer(std::move(data));
}

LanguageModel RandomModel(const std::string& preset, const std::string& dwa, Precision precision) {
  ModelConfig config = ModelConfig::Preset(preset);
  config.dwa = dwa;
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  return MakeLanguageModel(model.Frozen(FormatOf(precision)), NumberedTokens(config.vocab_size));
}

std::unique_ptr<OwnServer> StartServer(const Options& o) {
  if (int{o.port != 0} + int{!o.run.empty()} + int{!o.preset.empty()} != 1) {
    Throw(
        ErrorCode::kUsage,
        "bench serve: expected one of RUN, --preset (random weights) and --port (of a server that "
        "runs)");
  }
  if (o.port != 0) return nullptr;
  ServeOptions serve;
  serve.http.port = 0;
  serve.model_name = "bench";
  const Precision precision = ParsePrecision(o.precision);
  serve.load = [o, precision] {
    return o.run.empty() ? RandomModel(o.preset, o.dwa, precision)
                         : LanguageModel::Load(o.run, precision);
  };
  auto server = std::make_unique<OwnServer>(serve);
  server->Wait();
  return server;
}

std::string Row(const Json& row) {
  const auto ms = [&](const char* name, const char* of) { return row[name][of].get<double>(); };
  const double rate = row["rate"].get<double>();
  return fmt::format(
      "{:>11} {:>9} {:>6} {:>8.2f} {:>9.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} "
      "{:>8.1f}\n",
      rate > 0 ? fmt::format("{}/s", rate)
               : fmt::format("{} at once", row["concurrency"].get<int>()),
      row["completed"].get<int>(), row["failed"].get<int>(),
      row["requests_per_second"].get<double>(), row["output_tokens_per_second"].get<double>(),
      ms("ttft_ms", "p50"), ms("ttft_ms", "p99"), ms("tpot_ms", "p50"), ms("tpot_ms", "p99"),
      ms("itl_ms", "p50"), ms("itl_ms", "p99"));
}

// The median over the rounds.
double MedianOf(const std::vector<Json>& rows, const std::function<double(const Json&)>& number) {
  std::vector<double> values;
  for (const Json& row : rows) values.push_back(number(row));
  return Percentile(std::move(values), 0.5);
}

Chart LoadChart(const std::vector<Measured>& measured, bool open) {
  struct Line {
    const char *name, *times, *of;
  };
  static constexpr Line kLines[] = {{"TTFT, median", "ttft_ms", "p50"},
                                    {"TTFT, p99", "ttft_ms", "p99"},
                                    {"TPOT, median", "tpot_ms", "p50"},
                                    {"TPOT, p99", "tpot_ms", "p99"},
                                    {"tokens per second", "output_tokens_per_second", nullptr}};
  LineChart chart;
  chart.id = "bench-serve";
  chart.title = open ? "Times and throughput against the rate of requests"
                     : "Times and throughput against requests at once";
  chart.description =
      "Time to first token, time per output token and tokens per second of denseformer serve";
  chart.x_label = open ? "requests per second" : "requests at once";
  chart.y_label = "milliseconds; tokens per second";
  chart.log_y = chart.ticks_at_points = true;
  for (const Line& line : kLines) {
    Series& series = chart.series.emplace_back();
    series.name = line.name;
    for (const Measured& one : measured) {
      series.x.push_back(one.value);
      series.y.push_back(MedianOf(one.rows, [&](const Json& row) {
        return (line.of == nullptr ? row[line.times] : row[line.times][line.of]).get<double>();
      }));
    }
  }
  return chart;
}

// How many times the tokens per second of the first one, for each of the others.
Json RatiosJson(const std::vector<Measured>& measured, bool open) {
  Json ratios = Json::array();
  const Timing& base = measured.front().timing;
  for (size_t n = 1; n < measured.size(); ++n) {
    const Timing& timing = measured[n].timing;
    const MedianRatio ratio = RatioOfMedians(base, timing);
    ratios.push_back({{open ? "rate" : "concurrency", measured[n].value},
                      {"to", measured.front().value},
                      {"of_medians", ratio.value},
                      {"error", ratio.error},
                      {"of_minima", base.minimum() / timing.minimum()},
                      {"spread", timing.spread()},
                      {"spread_of_first", base.spread()}});
  }
  return ratios;
}

void PrintRatios(const Json& ratios, bool open) {
  for (const Json& ratio : ratios) {
    const auto number = [&](const char* name) { return ratio[name].get<double>(); };
    Print(
        "tokens/s, {} to {} {}: {:.2f}x by medians (+- {:.2f}), {:.2f}x by minima of the time; "
        "spread {:.1f} % and {:.1f} %\n",
        number(open ? "rate" : "concurrency"), number("to"),
        open ? "requests per second" : "at once", number("of_medians"), number("error"),
        number("of_minima"), 100 * number("spread"), 100 * number("spread_of_first"));
  }
}

void PrintHead() {
  Print("{:>11} {:>9} {:>6} {:>8} {:>9} {:>17} {:>17} {:>17}\n{:>11} {:>9} {:>6} {:>8} {:>9}",
        "load", "completed", "failed", "req/s", "tokens/s", "TTFT ms", "TPOT ms", "ITL ms", "", "",
        "", "", "");
  for (int n = 0; n < 3; ++n) Print(" {:>8} {:>8}", "p50", "p99");
  Print("\n");
}

// Runs a load; throws where no request succeeded. Each has prompts of its own: the server would
// otherwise find those of the run before among its prefixes.
class Runner {
 public:
  explicit Runner(const LoadOptions& load) : load_(load) {}

  LoadResult Run(LoadOptions load) {
    load.seed = load_.seed + (runs_++ << 32);
    LoadResult result = RunLoad(load);
    if (failure_.empty()) failure_ = result.failure;
    if (result.completed == 0) ThrowFailure();
    return result;
  }
  void ThrowFailure() const {
    if (failure_.empty()) return;
    Throw(ErrorCode::kInvalid, "bench serve: requests failed: {}", failure_);
  }

 private:
  const LoadOptions load_;
  uint64_t runs_ = 0;
  std::string failure_;  // the first one
};

// The first step makes the buffers of all others, and each text's first tokens come to memory that
// the system has to give. Only where as many texts have ended as the engine keeps prefixes are
// there pages to use again.
Json WarmUp(const Options& o, int concurrency, LoadOptions load, Runner& runner) {
  load.rate = 0;
  load.concurrency = concurrency;
  load.requests = o.warm_up > 0 ? o.warm_up : concurrency;
  load.seconds = std::max(load.seconds, kWarmUpSeconds);
  return LoadRow(load, runner.Run(load));
}

void BenchServe(const Options& o, const CommonOptions& common) {
  RequireWritable(o.svg);
  LoadOptions load = o.load;
  if (!o.api_key_file.empty()) {
    load.api_key = ParseApiKeys(ReadFile(o.api_key_file), o.api_key_file).front();
  }
  load.parameters = Json::parse(o.parameters, nullptr, /*allow_exceptions=*/false);
  const bool open = !o.rates.empty();
  std::vector<double> values;
  for (const std::string& value : Split(open ? o.rates : o.concurrency, ',')) {
    values.push_back(open ? ParseDouble("--rate", value, 1e-3, 1e5)
                          : static_cast<double>(ParseInt("--concurrency", value, 1, 1024)));
  }
  load.port = o.port == 0 ? 1 : o.port;
  load.Validate();
  const std::unique_ptr<OwnServer> server = StartServer(o);
  load.port = server ? server->port() : o.port;
  Runner runner(load);
  const Json warm_up =
      WarmUp(o, open ? 1 : static_cast<int>(std::ranges::max(values)), load, runner);
  std::vector<Measured> measured;
  for (const double value : values) measured.push_back({value, {}, {}});
  if (!common.json) PrintHead();
  Json rows = Json::array();
  for (int round = 0; round < o.rounds; ++round) {
    for (size_t n = 0; n < measured.size(); ++n) {
      // A B C, B C A, ...: each meets the disturbances of the machine at another place.
      Measured& one = measured[(n + static_cast<size_t>(round)) % measured.size()];
      load.rate = open ? one.value : 0;
      load.concurrency = open ? 1024 : static_cast<int>(one.value);
      const LoadResult result = runner.Run(load);
      Json row = LoadRow(load, result);
      row["round"] = round;
      one.timing.seconds.push_back(result.seconds / static_cast<double>(result.output_tokens));
      one.rows.push_back(row);
      if (!common.json) WriteStdout(Row(row));
      FlushStdout();
      rows.push_back(std::move(row));
    }
  }
  const Json ratios = RatiosJson(measured, open);
  if (!o.svg.empty())
    WriteFileAtomic(o.svg, DrawSvg(LoadChart(measured, open), /*standalone=*/true));
  if (common.json) PrintJson({{"warm_up", warm_up}, {"rows", rows}, {"ratios", ratios}});
  if (!common.json && o.rounds > 1) PrintRatios(ratios, open);
  runner.ThrowFailure();
}

}  // namespace

void AddBenchServe(CLI::App& parent, CommonOptions& common) {
  CLI::App& app = *parent.add_subcommand(
      "serve", "Load on an HTTP server: time to first token, time per token, throughput");
  auto options = std::make_shared<Options>();
  LoadOptions& load = options->load;
  app.add_option("RUN", options->run, "Serve this run for the time of the benchmark");
  app.add_option("--preset", options->preset, "Or a model of random weights with these shapes");
  app.add_option("--dwa", options->dwa, "Its depth pattern")->capture_default_str();
  app.add_option("--precision", options->precision, "auto, fp32, bf16 or int8")
      ->check(OneOf(InferencePrecisionNames()))
      ->capture_default_str();
  app.add_option("--port", options->port, "Or a server that runs on this port of loopback")
      ->check(WholeNumber(1, 65535));
  app.add_option("--api-key-file", options->api_key_file, "The first key of this file, for --port");
  CLI::Option* concurrency =
      app.add_option("--concurrency", options->concurrency,
                     "Closed loop: requests at once; several numbers, separated by commas")
          ->capture_default_str();
  app.add_option("--rate", options->rates,
                 "Open loop instead: requests per second, at random times; several numbers")
      ->excludes(concurrency);
  app.add_option("--requests", load.requests, "Requests for each number")
      ->check(WholeNumber(1, 100000))
      ->capture_default_str();
  app.add_option("--warm-up", options->warm_up,
                 "Requests before all others, at the largest concurrency; 0: as many as that. "
                 "Memory is reused after 64")
      ->check(WholeNumber(0, 100000))
      ->capture_default_str();
  app.add_option("--rounds", options->rounds,
                 "Take the numbers in turns so many times, and compare medians and minima")
      ->check(WholeNumber(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", load.seconds,
                 "No request of a number begins later than this, and none ends 30 seconds later")
      ->check(Number(0, 3600))
      ->capture_default_str();
  app.add_option("--prompt-tokens", load.prompt_tokens, "Length of the random prompts")
      ->check(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-tokens", load.max_tokens, "Length of the texts")
      ->check(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--parameters", options->parameters,
                 "More parameters of every request, as a JSON object")
      ->capture_default_str();
  app.add_option("--seed", load.seed, "Of prompts and arrival times")
      ->check(WholeNumber(0))
      ->capture_default_str();
  app.add_option("--svg", options->svg, "Also draw the result to this file")->check(FileToWrite());
  app.footer(
      "Examples:\n"
      "  denseformer bench serve runs/tiny --concurrency 1,4,16,64 --requests 128\n"
      "  denseformer bench serve --preset paper-48 --concurrency 1,16 --rounds 3 --json\n"
      "  denseformer bench serve runs/tiny --parameters '{\"top_p\": 0.9, \"logprobs\": 5}'\n"
      "  denseformer bench serve --port 8080 --rate 1,2,4 --svg load.svg");
  SetWork(app, common, options, [&common](const Options& o) { BenchServe(o, common); });
}

}  // namespace denseformer

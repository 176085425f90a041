#include "serve/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "serve/client.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLateSeconds = 0.01;
constexpr double kClientSeconds = 120;  // without any byte from the server

double Since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

void CheckRange(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    Throw(ErrorCode::kUsage, "{}: got {}, expected {} to {}", name, value, low, high);
  }
}

HttpHeaders Headers(const LoadOptions& options) {
  if (options.api_key.empty()) return {};
  return {{"Authorization", "Bearer " + options.api_key}};
}

// Random prompts, so that none has a prefix to reuse.
Json Body(const LoadOptions& options, int number, int vocab) {
  Random random(options.seed, 1, static_cast<uint64_t>(number));
  std::vector<int32_t> prompt;
  for (int n = 0; n < options.prompt_tokens; ++n) {
    prompt.push_back(static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab))));
  }
  return {{"prompt", prompt},   {"max_tokens", options.max_tokens},
          {"ignore_eos", true}, {"stream", true},
          {"seed", number},     {"return_token_ids", true}};
}

// The threads of one load.
class Load {
 public:
  explicit Load(const LoadOptions& options) : options_(options) {
    HttpClient client(options.address, options.port, kClientSeconds);
    const HttpClient::Answer info = client.Call("GET", "/tokenizer_info", "", Headers(options));
    if (info.status != 200) {
      Throw(ErrorCode::kInvalid, "bench serve: the server on port {} answers {}: {}", options.port,
            info.status, info.body);
    }
    vocab_ = Json::parse(info.body)["vocab_size"].get<int>();
    double at = 0;
    for (int n = 0; n < options.requests; ++n) {
      arrivals_.push_back(at);
      if (options.rate == 0) continue;
      at -= std::log(1 - Random(options.seed, 2, static_cast<uint64_t>(n)).UniformDouble()) /
            options.rate;
    }
  }

  LoadResult Run() {
    begin_ = Clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < std::min(options_.concurrency, options_.requests); ++t) {
      threads.emplace_back([this] { Work(); });
    }
    for (std::thread& thread : threads) thread.join();
    result_.seconds = Since(begin_);
    return std::move(result_);
  }

 private:
  void Work() {
    for (int number; (number = next_++) < options_.requests;) {
      const double at = arrivals_[static_cast<size_t>(number)];
      if (std::max(at, Since(begin_)) > options_.seconds) return;
      std::this_thread::sleep_until(
          begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at)));
      const bool late = options_.rate > 0 && Since(begin_) - at > kLateSeconds;
      try {
        Request(number, late);
      } catch (const Error& error) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (result_.failed++ == 0) result_.failure = error.what();
      }
    }
  }

  void Request(int number, bool late) {
    const std::string body = ToText(Body(options_, number, vocab_));
    const Clock::time_point begin = Clock::now();
    HttpClient client(options_.address, options_.port, kClientSeconds);
    client.SendRequest("POST", "/v1/completions", body, Headers(options_));
    const HttpClient::Answer head = client.ReceiveHead();
    if (head.status != 200) {
      Throw(ErrorCode::kBusy, "status {}: {}", head.status, client.ReceivePiece());
    }
    std::vector<double> times;  // of the tokens
    for (std::string event; (event = client.ReceiveEvent()) != "[DONE]";) {
      const Json chunk = Json::parse(event, nullptr, /*allow_exceptions=*/false);
      if (!chunk.is_object() || chunk.contains("error")) {
        Throw(ErrorCode::kIo, "the stream says '{}'", event);
      }
      for (size_t n = chunk["choices"][0]["token_ids"].size(); n > 0; --n) {
        times.push_back(Since(begin));
      }
    }
    if (times.size() < static_cast<size_t>(options_.max_tokens)) {
      Throw(ErrorCode::kInvalid,
            "a text of {} tokens, expected {}; prompt and text must fit into the model's context",
            times.size(), options_.max_tokens);
    }
    Record(times, Since(begin), late);
  }

  void Record(const std::vector<double>& times, double latency, bool late) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++result_.completed;
    result_.late += late ? 1 : 0;
    result_.output_tokens += static_cast<int64_t>(times.size());
    result_.latency.push_back(latency);
    result_.ttft.push_back(times.front());
    if (times.size() < 2) return;
    result_.tpot.push_back((times.back() - times.front()) / static_cast<double>(times.size() - 1));
    for (size_t n = 1; n < times.size(); ++n) result_.itl.push_back(times[n] - times[n - 1]);
  }

  const LoadOptions options_;
  int vocab_ = 0;
  std::vector<double> arrivals_;
  Clock::time_point begin_;
  std::atomic<int> next_ = 0;
  std::mutex mutex_;
  LoadResult result_;
};

Json TimesJson(const std::vector<double>& seconds) {
  const double mean = seconds.empty() ? 0
                                      : std::accumulate(seconds.begin(), seconds.end(), 0.0) /
                                            static_cast<double>(seconds.size());
  return {{"mean", 1000 * mean},
          {"p50", 1000 * Percentile(seconds, 0.5)},
          {"p90", 1000 * Percentile(seconds, 0.9)},
          {"p99", 1000 * Percentile(seconds, 0.99)}};
}

}  // namespace

void LoadOptions::Validate() const {
  if (!address.starts_with("127.")) {
    Throw(ErrorCode::kUsage, "address: got {}, expected one of loopback (127.x.x.x)", address);
  }
  CheckRange("port", port, 1, 65535);
  CheckRange("concurrency", concurrency, 1, 1024);
  CheckRange("rate", rate, 0, 100000);
  CheckRange("requests", requests, 1, 100000);
  CheckRange("seconds", seconds, 0, 3600);
  CheckRange("prompt_tokens", prompt_tokens, 1, 1 << 20);
  CheckRange("max_tokens", max_tokens, 1, 1 << 20);
}

LoadResult RunLoad(const LoadOptions& options) {
  options.Validate();
  return Load(options).Run();
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const size_t at = static_cast<size_t>(std::max(1.0, rank)) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(at), values.end());
  return values[at];
}

Json LoadRow(const LoadOptions& options, const LoadResult& result) {
  return {{"concurrency", options.concurrency},
          {"rate", options.rate},
          {"prompt_tokens", options.prompt_tokens},
          {"max_tokens", options.max_tokens},
          {"completed", result.completed},
          {"failed", result.failed},
          {"late", result.late},
          {"seconds", result.seconds},
          {"requests_per_second", result.completed / result.seconds},
          {"output_tokens_per_second", static_cast<double>(result.output_tokens) / result.seconds},
          {"ttft_ms", TimesJson(result.ttft)},
          {"tpot_ms", TimesJson(result.tpot)},
          {"itl_ms", TimesJson(result.itl)},
          {"latency_ms", TimesJson(result.latency)}};
}

}  // namespace denseformer

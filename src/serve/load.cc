#include "serve/load.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "serve/client.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLateSeconds = 0.01;
constexpr double kClientSeconds = 120;  // without any byte from the server
constexpr double kPastEnd = 0.001;      // so that a wait until the end is over after it
constexpr double kLookSeconds = 1;      // between two looks for servers that are silent

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
  Json body = {{"prompt", prompt},   {"max_tokens", options.max_tokens},
               {"ignore_eos", true}, {"stream", true},
               {"seed", number},     {"return_token_ids", true}};
  body.update(options.parameters);
  return body;
}

// How many ids the event has, by its text alone: the cores that the load generator takes are those
// of the server. Quotes within texts are escaped, so that no text looks like a member.
size_t CountTokens(std::string_view event) {
  static constexpr std::string_view kBegin = "\"token_ids\":[";
  if (!event.starts_with('{') || event.find("\"error\":") != std::string_view::npos) {
    Throw(ErrorCode::kIo, "the stream says '{}'", event);
  }
  const size_t found = event.find(kBegin);
  if (found == std::string_view::npos) return 0;
  const std::string_view ids = event.substr(found + kBegin.size());
  const std::string_view list = ids.substr(0, ids.find(']'));
  return list.empty() ? 0 : 1 + static_cast<size_t>(std::count(list.begin(), list.end(), ','));
}

// A request under way.
struct Stream {
  HttpClient client;
  bool late;
  Clock::time_point begin, heard;  // sent, and last byte received
  bool headed = false;             // status and headers are received
  bool over = false;
  std::vector<double> times = {};  // of the tokens
};

// One load, on the calling thread: it sleeps until a server's byte or the time of a request comes.
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
    while (true) {
      StartDue();
      if (streams_.empty() && !Coming()) break;
      if (Since(begin_) > options_.seconds + options_.end_seconds) {
        GiveUp();
        break;
      }
      Wait();
    }
    result_.seconds = Since(begin_);
    return std::move(result_);
  }

 private:
  // Whether another request is to begin, now or later.
  bool Coming() const {
    return next_ < options_.requests &&
           std::max(arrivals_[static_cast<size_t>(next_)], Since(begin_)) <= options_.seconds;
  }

  void StartDue() {
    while (Coming() && static_cast<int>(streams_.size()) < options_.concurrency) {
      const double at = arrivals_[static_cast<size_t>(next_)], now = Since(begin_);
      if (now < at) return;
      const int number = next_++;
      Guarded([&] { Start(number, options_.rate > 0 && now - at > kLateSeconds); });
    }
  }

  void Start(int number, bool late) {
    const std::string body = ToText(Body(options_, number, vocab_));
    const Clock::time_point begin = Clock::now();
    // Also a server that ends in the middle of an event must not hold the load up.
    HttpClient client(options_.address, options_.port,
                      std::min(kClientSeconds, options_.end_seconds + kLookSeconds));
    client.SendRequest("POST", "/v1/completions", body, Headers(options_));
    streams_.push_back({std::move(client), late, begin, begin});
  }

  void GiveUp() {
    for (size_t n = 0; n < streams_.size(); ++n) {
      Guarded([&] {
        Throw(ErrorCode::kBusy, "not finished {} seconds after the last one may begin",
              options_.end_seconds);
      });
    }
    streams_.clear();
  }

  // Waits for bytes, at most until the next request is due, and takes what came.
  void Wait() {
    double seconds =
        std::min(kLookSeconds, options_.seconds + options_.end_seconds + kPastEnd - Since(begin_));
    if (Coming() && static_cast<int>(streams_.size()) < options_.concurrency) {
      seconds = std::min(seconds, arrivals_[static_cast<size_t>(next_)] - Since(begin_));
    }
    std::vector<pollfd> sockets;
    for (const Stream& stream : streams_)
      sockets.push_back({stream.client.descriptor(), POLLIN, 0});
    const int milliseconds = static_cast<int>(std::ceil(1000 * std::max(0.0, seconds)));
    if (poll(sockets.data(), sockets.size(), milliseconds) < 0 && errno != EINTR) {
      ThrowErrno(errno, "bench serve: cannot wait for the server");
    }
    for (size_t n = 0; n < sockets.size(); ++n) {
      Stream& stream = streams_[n];
      stream.over = true;  // also where it fails
      Guarded([&] { stream.over = sockets[n].revents != 0 ? Take(stream) : Silent(stream); });
    }
    std::erase_if(streams_, [](const Stream& stream) { return stream.over; });
  }

  static bool Silent(const Stream& stream) {
    if (Since(stream.heard) > kClientSeconds) {
      Throw(ErrorCode::kIo, "no answer for {} seconds", kClientSeconds);
    }
    return false;
  }

  // Takes what has come; true at the end of the stream.
  bool Take(Stream& stream) {
    stream.heard = Clock::now();
    if (!std::exchange(stream.headed, true)) {
      const HttpClient::Answer head = stream.client.ReceiveHead();
      if (head.status != 200) {
        Throw(ErrorCode::kBusy, "status {}: {}", head.status, stream.client.ReceivePiece());
      }
      if (!stream.client.buffered()) return false;
    }
    do {
      const std::string event = stream.client.ReceiveEvent();
      if (event == "[DONE]") {
        Record(stream);
        return true;
      }
      stream.times.insert(stream.times.end(), CountTokens(event), Since(stream.begin));
    } while (stream.client.buffered());
    return false;
  }

  void Record(const Stream& stream) {
    const std::vector<double>& times = stream.times;
    if (times.size() < static_cast<size_t>(options_.max_tokens)) {
      Throw(ErrorCode::kInvalid,
            "a text of {} tokens, expected {}; prompt and text must fit into the model's context",
            times.size(), options_.max_tokens);
    }
    ++result_.completed;
    result_.late += stream.late ? 1 : 0;
    result_.output_tokens += static_cast<int64_t>(times.size());
    result_.latency.push_back(Since(stream.begin));
    result_.ttft.push_back(times.front());
    if (times.size() < 2) return;
    result_.tpot.push_back((times.back() - times.front()) / static_cast<double>(times.size() - 1));
    for (size_t n = 1; n < times.size(); ++n) result_.itl.push_back(times[n] - times[n - 1]);
  }

  // Counts what fails.
  template <class F>
  void Guarded(F work) {
    try {
      work();
    } catch (const Error& error) {
      if (result_.failed++ == 0) result_.failure = error.what();
    }
  }

  const LoadOptions options_;
  int vocab_ = 0;
  std::vector<double> arrivals_;
  Clock::time_point begin_;
  int next_ = 0;  // request
  std::vector<Stream> streams_;
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
  CheckRange("end_seconds", end_seconds, 0, 3600);
  CheckRange("prompt_tokens", prompt_tokens, 1, 1 << 20);
  CheckRange("max_tokens", max_tokens, 1, 1 << 20);
  if (!parameters.is_object()) {
    Throw(ErrorCode::kUsage, "parameters: expected a JSON object ('{{\"top_p\": 0.9}}')");
  }
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

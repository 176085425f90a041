#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr MetricInfo kTable[] = {
    {Metric::kSequencesRunning, "denseformer_sequences_running", MetricKind::kGauge, "",
     "Sequences that are computed in every step"},
    {Metric::kSequencesWaiting, "denseformer_sequences_waiting", MetricKind::kGauge, "",
     "Sequences that wait for their turn"},
    {Metric::kConnections, "denseformer_connections", MetricKind::kGauge, "", "Open connections"},
    {Metric::kUnsentBytes, "denseformer_unsent_bytes", MetricKind::kGauge, "",
     "Bytes of answers that clients have not taken yet"},
    {Metric::kReservedBytes, "denseformer_reserved_bytes", MetricKind::kGauge, "",
     "Bytes that answers in the making may come to take"},
    {Metric::kBufferedBytes, "denseformer_buffered_bytes", MetricKind::kGauge, "",
     "Both, and bytes of requests that are being received"},
    {Metric::kCacheBytes, "denseformer_kv_cache_bytes", MetricKind::kGauge, "",
     "Keys and values held by running sequences and kept prefixes"},
    {Metric::kCacheLimitBytes, "denseformer_kv_cache_limit_bytes", MetricKind::kGauge, "",
     "The most that keys and values may take"},
    {Metric::kPromptTokens, "denseformer_prompt_tokens_total", MetricKind::kCounter, "",
     "Tokens of prompts that were computed"},
    {Metric::kReusedTokens, "denseformer_reused_prompt_tokens_total", MetricKind::kCounter, "",
     "Tokens of prompts that a common prefix spared"},
    {Metric::kGeneratedTokens, "denseformer_generated_tokens_total", MetricKind::kCounter, "",
     "Generated tokens"},
    {Metric::kSteps, "denseformer_engine_steps_total", MetricKind::kCounter, "",
     "Steps of the engine, one pass each"},
    {Metric::kResponses, "denseformer_responses_total", MetricKind::kCounter, "code",
     "Answers by HTTP status"},
    {Metric::kCancelled, "denseformer_cancelled_total", MetricKind::kCounter, "reason",
     "Requests given up: disconnect, timeout, shutdown"},
    {Metric::kRejected, "denseformer_rejected_total", MetricKind::kCounter, "reason",
     "Requests not accepted: queue, buffers, loading, draining"},
    {Metric::kFirstTokenSeconds, "denseformer_time_to_first_token_seconds", MetricKind::kHistogram,
     "", "From a request to the first token of each of its texts"},
    {Metric::kInterTokenSeconds, "denseformer_inter_token_seconds", MetricKind::kHistogram, "",
     "Between two tokens of a text"},
    {Metric::kQueueSeconds, "denseformer_queue_seconds", MetricKind::kHistogram, "",
     "From a request to the begin of each of its texts"},
    {Metric::kRequestSeconds, "denseformer_request_seconds", MetricKind::kHistogram, "",
     "From a request to the end of its answer"},
    {Metric::kResidentBytes, "process_resident_memory_bytes", MetricKind::kGauge, "",
     "Memory of the process"},
};

constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                              0.5,   1,      2.5,   5,    10,    25,   50,  100};

constexpr const char* kKindNames[] = {"counter", "gauge", "histogram"};

}  // namespace

std::span<const MetricInfo> MetricTable() { return kTable; }

Metrics::Metrics() {
  for (const MetricInfo& info : kTable) {
    if (info.kind == MetricKind::kHistogram) {
      histograms_[info.metric].buckets.resize(std::size(kBounds) + 1);
    } else if (*info.label == '\0') {
      values_[info.metric][""] = 0;
    } else {
      values_[info.metric];
    }
  }
}

void Metrics::Add(Metric metric, double value, const std::string& label) {
  values_.at(metric)[label] += value;
}

void Metrics::Set(Metric metric, double value) { values_.at(metric)[""] = value; }

void Metrics::Observe(Metric metric, double seconds) {
  Histogram& histogram = histograms_.at(metric);
  const auto bound = std::lower_bound(std::begin(kBounds), std::end(kBounds), seconds);
  ++histogram.buckets[static_cast<size_t>(bound - std::begin(kBounds))];
  histogram.sum += seconds;
  ++histogram.count;
}

double Metrics::Value(Metric metric, const std::string& label) const {
  const auto& labels = values_.at(metric);
  const auto found = labels.find(label);
  return found == labels.end() ? 0 : found->second;
}

std::string Metrics::ToText() const {
  std::string text;
  for (const MetricInfo& info : kTable) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", info.name, info.help,
                        kKindNames[static_cast<int>(info.kind)]);
    if (info.kind == MetricKind::kHistogram) {
      const Histogram& histogram = histograms_.at(info.metric);
      uint64_t below = 0;
      for (size_t n = 0; n < std::size(kBounds); ++n) {
        below += histogram.buckets[n];
        text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", info.name, kBounds[n], below);
      }
      text += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", info.name,
                          histogram.count, histogram.sum);
      continue;
    }
    for (const auto& [label, value] : values_.at(info.metric)) {
      text += *info.label == '\0'
                  ? fmt::format("{} {}\n", info.name, value)
                  : fmt::format("{}{{{}=\"{}\"}} {}\n", info.name, info.label, label, value);
    }
  }
  return text;
}

}  // namespace denseformer

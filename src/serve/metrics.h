// What the server counts, in Prometheus' text format. On the I/O thread only.
#ifndef DENSEFORMER_SERVE_METRICS_H_
#define DENSEFORMER_SERVE_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace denseformer {

enum class MetricKind { kCounter, kGauge, kHistogram };

// In the order of the table in metrics.cc.
enum class Metric {
  kSequencesRunning,
  kSequencesWaiting,
  kConnections,
  kUnsentBytes,
  kReservedBytes,
  kBufferedBytes,
  kCacheBytes,
  kCacheLimitBytes,
  kPromptTokens,
  kReusedTokens,
  kGeneratedTokens,
  kSteps,
  kResponses,
  kCancelled,
  kRejected,
  kFirstTokenSeconds,
  kInterTokenSeconds,
  kQueueSeconds,
  kRequestSeconds,
  kResidentBytes,
};

struct MetricInfo {
  Metric metric;
  const char* name;
  MetricKind kind;
  const char* label;  // "": none
  const char* help;
};

// The table; docs/serving.md has the same rows.
std::span<const MetricInfo> MetricTable();

class Metrics {
 public:
  Metrics();

  // Counters and gauges. Counters of another's count are set as well.
  void Add(Metric metric, double value = 1, const std::string& label = "");
  void Set(Metric metric, double value);
  void Observe(Metric metric, double seconds);
  double Value(Metric metric, const std::string& label = "") const;

  std::string ToText() const;

 private:
  struct Histogram {
    std::vector<uint64_t> buckets;
    double sum = 0;
    uint64_t count = 0;
  };

  std::map<Metric, std::map<std::string, double>> values_;
  std::map<Metric, Histogram> histograms_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_METRICS_H_

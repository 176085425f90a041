// A load generator for a server of this project on loopback: closed loop (so many requests at a
// time) or open loop (requests arrive at random times at a rate, whether or not others are
// answered).
//
//   TTFT  time to first token, from sending a request
//   TPOT  time per output token after the first, mean of a request
//   ITL   inter-token latency, each gap by itself
#ifndef DENSEFORMER_SERVE_LOAD_H_
#define DENSEFORMER_SERVE_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "serve/json.h"

namespace denseformer {

struct LoadOptions {
  std::string address = "127.0.0.1";  // of loopback
  int port = 8080;
  std::string api_key;      // empty: none
  int concurrency = 1;      // requests at a time; with a rate, the most that may be under way
  double rate = 0;          // requests per second; 0: closed loop
  int requests = 32;        // in all
  double seconds = 60;      // no request begins later than this, ...
  double end_seconds = 30;  // ... and what is under way so much later is given up and has failed
  int prompt_tokens = 32;
  int max_tokens = 32;  // each text has as many
  uint64_t seed = 1;    // of prompts and arrival times
  // More parameters of every request, an object; they replace those of the load itself.
  Json parameters = Json::object();

  // Throws kUsage that names the field.
  void Validate() const;
};

struct LoadResult {
  int completed = 0, failed = 0;
  int late = 0;         // of an open loop: began more than 10 ms after their time
  std::string failure;  // what the first one that failed said
  double seconds = 0;   // from the first request to the last answer
  int64_t output_tokens = 0;
  std::vector<double> ttft, tpot, itl, latency;  // in seconds
};

LoadResult RunLoad(const LoadOptions& options);

// The value below which this share of the values lies (nearest rank); 0 where there are none.
double Percentile(std::vector<double> values, double share);

// One row of a result: rates, and mean, p50, p90 and p99 of the times in milliseconds.
Json LoadRow(const LoadOptions& options, const LoadResult& result);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_LOAD_H_

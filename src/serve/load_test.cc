#include "serve/load.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"
#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::SmallOptions;
using testing::TestServer;

LoadOptions Small(const TestServer& server) {
  LoadOptions options;
  options.port = server.port();
  options.requests = 12;
  options.concurrency = 4;
  options.prompt_tokens = 5;
  options.max_tokens = 8;
  return options;
}

TEST(LoadTest, ClosedLoop) {
  const TestServer server;
  const LoadOptions options = Small(server);
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.completed, 12) << result.failure;
  EXPECT_EQ(result.failed, 0);
  EXPECT_EQ(result.output_tokens, 12 * 8);
  EXPECT_EQ(result.ttft.size(), 12u);
  EXPECT_EQ(result.tpot.size(), 12u);
  EXPECT_EQ(result.itl.size(), 12u * 7);
  for (size_t n = 0; n < 12; ++n) EXPECT_LE(result.ttft[n], result.latency[n]);
  const Json row = LoadRow(options, result);
  EXPECT_NEAR(row["output_tokens_per_second"].get<double>(), 96 / result.seconds, 1e-6);
  EXPECT_LE(row["ttft_ms"]["p50"].get<double>(), row["ttft_ms"]["p99"].get<double>());
}

TEST(LoadTest, OpenLoopKeepsItsRate) {
  const TestServer server;
  LoadOptions options = Small(server);
  options.rate = 40;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.completed, 12) << result.failure;
  // Eleven gaps with a mean of 25 ms, the same ones for this seed.
  EXPECT_GT(result.seconds, 0.08);
  // The second request would come after some hundred seconds.
  options.rate = 0.001;
  options.seconds = 5;
  EXPECT_EQ(RunLoad(options).completed, 1);
}

TEST(LoadTest, WhatDoesNotEndIsGivenUp) {
  ServeOptions serve = SmallOptions();
  serve.queue.max_tokens = int64_t{1} << 40;
  const TestServer server(serve);
  LoadOptions options = Small(server);
  options.max_tokens = 1 << 20;
  options.parameters = {{"context", "slide"}};
  options.seconds = options.end_seconds = 0.1;
  const LoadResult result = RunLoad(options);
  EXPECT_EQ(result.completed, 0);
  EXPECT_EQ(result.failed, 4);
  EXPECT_NE(result.failure.find("not finished 0.1 seconds after"), std::string::npos)
      << result.failure;
}

TEST(LoadTest, FailuresAreCounted) {
  ServeOptions serve = SmallOptions();
  serve.request.max_tokens = 4;
  const TestServer server(serve);
  const LoadResult result = RunLoad(Small(server));
  EXPECT_EQ(result.completed, 0);
  EXPECT_EQ(result.failed, 12);
  EXPECT_NE(result.failure.find("status 400"), std::string::npos) << result.failure;
}

TEST(LoadTest, OnlyLoopbackAndWithinBounds) {
  LoadOptions options;
  options.address = "192.0.2.1";
  ExpectError(ErrorCode::kUsage, "loopback", [&] { RunLoad(options); });
  options = {};
  options.requests = 0;
  ExpectError(ErrorCode::kUsage, "requests: got 0", [&] { RunLoad(options); });
}

TEST(LoadTest, Percentiles) {
  EXPECT_EQ(Percentile({}, 0.5), 0);
  EXPECT_EQ(Percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Percentile({3, 1, 2}, 0.99), 3);
  EXPECT_EQ(Percentile({3, 1, 2, 4}, 0.5), 2);
}

}  // namespace
}  // namespace denseformer

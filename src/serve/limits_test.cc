// Limits, cancellation and drain, over real HTTP on loopback.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::ByteModel;
using testing::Eventually;
using testing::FakeClock;
using testing::LetTicksPass;
using testing::ReadStream;
using testing::SmallOptions;
using testing::TestServer;

// A text without end: it goes on until its client leaves.
Json Endless() {
  return {{"prompt", "ab"},     {"max_tokens", 1 << 20}, {"ignore_eos", true},
          {"context", "slide"}, {"stream", true},        {"seed", 1}};
}

ServeOptions Unlimited() {
  ServeOptions options = SmallOptions();
  options.queue.max_tokens = int64_t{1} << 40;
  options.http.max_output_bytes = size_t{1} << 28;  // these clients read little
  return options;
}

// Starts a stream and reads its first event.
HttpClient StartStream(const TestServer& server, const Json& body = Endless()) {
  HttpClient client = server.Client();
  client.SendRequest("POST", "/v1/completions", ToText(body));
  EXPECT_EQ(client.ReceiveHead().status, 200);
  EXPECT_NE(client.ReceiveEvent(), "");
  return client;
}

bool Idle(const TestServer& server) {
  return server.Metric("denseformer_sequences_running") +
             server.Metric("denseformer_sequences_waiting") ==
         0;
}

TEST(ServeLimitsTest, QueueOfSequencesIsBounded) {
  ServeOptions options = Unlimited();
  options.engine.max_sequences = 1;
  options.queue.max_sequences = 2;
  TestServer server(options);
  HttpClient running = StartStream(server);
  HttpClient waiting = server.Client();
  waiting.SendRequest("POST", "/v1/completions", ToText(Endless()));
  EXPECT_EQ(waiting.ReceiveHead().status, 200);  // an open stream that waits for its turn
  const HttpClient::Answer full = server.Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(full.status, 429);
  EXPECT_NE(full.body.find("2 sequences of 2"), std::string::npos) << full.body;
  EXPECT_GE(std::stoi(std::string(full.Header("retry-after"))), 1);
  EXPECT_EQ(server.Metric("denseformer_rejected_total{reason=\"queue\"}"), 1);
  EXPECT_EQ(server.Metric("denseformer_sequences_waiting"), 1);
  // More than there ever is room for is no matter of time.
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}, {"n", 3}}).status, 400);
  // The one that waits leaves: its place is free at once.
  waiting.Close();
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_sequences_waiting") == 0; }));
  HttpClient next = server.Client();
  next.SendRequest("POST", "/v1/completions", ToText(Endless()));
  EXPECT_EQ(next.ReceiveHead().status, 200);
  running.Close();
  EXPECT_NE(next.ReceiveEvent(), "");  // its turn
  next.Close();
  EXPECT_TRUE(Eventually([&] { return Idle(server); }));
  EXPECT_EQ(server.Metric("denseformer_cancelled_total{reason=\"disconnect\"}"), 3);
}

TEST(ServeLimitsTest, QueueOfTokensIsBounded) {
  ServeOptions options = Unlimited();
  options.queue.max_tokens = (1 << 20) + 2 + 10;
  TestServer server(options);
  EXPECT_EQ(server
                .Post("/v1/completions",
                      {{"prompt", "abc"}, {"max_tokens", 1 << 20}, {"context", "slide"}, {"n", 2}})
                .status,
            400);
  HttpClient endless = StartStream(server);  // a prompt of 2 tokens and 2^20 more
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 9}}).status, 200);
  const HttpClient::Answer full =
      server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 10}});
  EXPECT_EQ(full.status, 429);
  EXPECT_NE(full.body.find("1048578 tokens of 1048588"), std::string::npos) << full.body;
  endless.Close();
  EXPECT_TRUE(Eventually([&] { return Idle(server); }));
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 10}}).status, 200);
}

TEST(ServeLimitsTest, MaxTokensAndRequestTime) {
  ServeOptions options = Unlimited();
  options.request.max_tokens = 10;
  TestServer server(options);
  const HttpClient::Answer refused =
      server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 11}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("\"param\":\"max_tokens\""), std::string::npos) << refused.body;
  EXPECT_EQ(server.Complete({{"prompt", "x"}, {"ignore_eos", true}})["usage"]["completion_tokens"],
            10);
  server.Stop();

  ServeOptions timed = Unlimited();
  timed.queue.request_seconds = 0.3;
  TestServer slow(timed);
  HttpClient stream = StartStream(slow);
  std::string last, event;
  while (!(event = stream.ReceiveEvent()).empty() && event != "[DONE]") last = event;
  EXPECT_NE(last.find("took longer than 0.3 seconds"), std::string::npos) << last;
  Json whole = Endless();
  whole["stream"] = false;
  EXPECT_EQ(slow.Post("/v1/completions", whole).status, 504);
  EXPECT_TRUE(Eventually([&] { return Idle(slow); }));
  EXPECT_EQ(slow.Metric("denseformer_cancelled_total{reason=\"timeout\"}"), 2);
}

TEST(ServeLimitsTest, MemoryThatASequenceCannotHaveIsRefused) {
  ServeOptions options = SmallOptions(256);
  options.engine.max_rows = 32;
  options.engine.max_sequences = 2;
  // Room for the buffers of a step and few pages; found by what the engine says.
  options.engine.memory_bytes = 1;
  TestServer broken(options, /*wait=*/false);
  broken.Join();
  EXPECT_NE(broken.failure().find("memory_bytes: got 1"), std::string::npos) << broken.failure();
  const size_t take = broken.failure().find("take ");
  ASSERT_NE(take, std::string::npos);
  const int64_t buffers = std::stoll(broken.failure().substr(take + 5));
  const int64_t page = std::stoll(broken.failure().substr(broken.failure().find("values ") + 7));
  options.engine.memory_bytes = buffers + 2 * page;
  TestServer server(options);
  for (const bool stream : {false, true}) {
    const HttpClient::Answer answer =
        server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 200}, {"stream", stream}});
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find("more memory"), std::string::npos) << answer.body;
  }
  server.Complete({{"prompt", "x"}, {"max_tokens", 20}});
}

TEST(ServeLimitsTest, SlowReaderIsCutOffAndOthersGoOn) {
  ServeOptions options = Unlimited();
  options.http.max_output_bytes = 64 << 10;
  options.engine.max_sequences = 4;
  TestServer server(options);
  Json wordy = Endless();
  wordy["logprobs"] = 20;
  HttpClient slow = StartStream(server, wordy);  // and reads no more
  EXPECT_TRUE(Eventually([&] {
    EXPECT_LT(server.Metric("denseformer_unsent_bytes"), 80 << 10);
    return server.Metric("denseformer_cancelled_total{reason=\"disconnect\"}") == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return Idle(server); }));
  server.Complete({{"prompt", "x"}, {"max_tokens", 5}});
  EXPECT_TRUE(slow.ReceiveEnd());
}

// Megabytes: more than the system keeps for a client that does not read.
Json LongAnswer() {
  return {{"prompt", std::string(44, 'a')},
          {"n", 100},
          {"max_tokens", 1},
          {"echo", true},
          {"logprobs", 20},
          {"seed", 1}};
}

TEST(ServeLimitsTest, AnswerThatIsNotReadIsGivenUp) {
  FakeClock clock;
  ServeOptions options = SmallOptions();
  options.http.now = clock.now();
  options.http.write_seconds = 30;
  options.http.min_bytes_per_second = 0;
  TestServer server(options);
  HttpClient deaf = server.Client();
  deaf.SendRequest("POST", "/v1/completions", ToText(LongAnswer()));
  const auto unsent = [&] { return server.Metric("denseformer_unsent_bytes"); };
  EXPECT_TRUE(Eventually([&] { return unsent() > (1 << 20); }));
  // The system goes on to take some for the client, for a moment.
  EXPECT_TRUE(Eventually([&] {
    const double before = unsent();
    LetTicksPass();
    return unsent() == before;
  }));
  clock.Advance(29.5);
  LetTicksPass();
  EXPECT_GT(unsent(), 1 << 20);
  EXPECT_TRUE(Eventually([&] {
    clock.Advance(0.6);
    return server.Metric("denseformer_connections") == 1 &&
           server.Metric("denseformer_buffered_bytes") < 10000;
  }));
  EXPECT_TRUE(deaf.ReceiveEnd());
}

TEST(ServeLimitsTest, LongAnswersMustBeReadAtSomeSpeed) {
  for (const bool strict : {true, false}) {
    ServeOptions options = SmallOptions();
    options.http.write_seconds = strict ? 0.3 : 20;
    options.http.min_bytes_per_second = strict ? 1e9 : 1;
    TestServer server(options);
    HttpClient slow = server.Client();
    slow.SendRequest("POST", "/v1/completions", ToText(LongAnswer()));
    const auto read = [&] {
      EXPECT_EQ(slow.ReceiveHead().status, 200);
      while (!slow.ReceivePiece().empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    };
    if (strict) {
      EXPECT_THROW(read(), Error);
    } else {
      read();
    }
  }
}

TEST(ServeLimitsTest, NewWorkIsRefusedWhileAnswersFillTheBuffers) {
  ServeOptions options = SmallOptions();
  options.http.max_buffered_bytes = 7 << 20;  // room for one such answer in the making
  TestServer server(options);
  HttpClient deaf = server.Client();
  deaf.SendRequest("POST", "/v1/completions", ToText(LongAnswer()));
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_unsent_bytes") > (1 << 20); }));
  EXPECT_EQ(server.Metric("denseformer_reserved_bytes"), 0);
  EXPECT_EQ(server.Metric("denseformer_buffered_bytes"), server.Metric("denseformer_unsent_bytes"));
  Json longer = LongAnswer();
  longer["n"] = 128;
  const HttpClient::Answer refused = server.Post("/v1/completions", longer);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_NE(refused.Header("retry-after"), "");
  EXPECT_EQ(server.Metric("denseformer_rejected_total{reason=\"buffers\"}"), 1);
  EXPECT_EQ(server.Client().Call("GET", "/health").status, 200);
  EXPECT_EQ(deaf.Receive().status, 200);
  EXPECT_EQ(server.Post("/v1/completions", longer).status, 200);
}

TEST(ServeLimitsTest, NewWorkIsRefusedWhileBodiesFillTheBuffers) {
  ServeOptions options = SmallOptions();
  options.http.max_buffered_bytes = 40 << 10;
  TestServer server(options);
  std::vector<HttpClient> senders;  // of bodies that are too small to be refused
  for (int n = 0; n < 4; ++n) {
    senders.push_back(server.Client());
    senders.back().Send("POST /tokenize HTTP/1.1\r\nContent-Length: 15000\r\n\r\n" +
                        std::string(14000, ' '));
  }
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_buffered_bytes") > (50 << 10); }));
  const Json body = {{"prompt", "x"}, {"stream", true}};
  EXPECT_EQ(server.Post("/v1/completions", body).status, 503);
  EXPECT_EQ(server.Metric("denseformer_rejected_total{reason=\"buffers\"}"), 1);
  senders.clear();
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_buffered_bytes") < 10000; }));
  EXPECT_EQ(server.Post("/v1/completions", body).status, 200);
}

// An answer that is not streamed is collected to its end, however many log-probabilities it has.
TEST(ServeLimitsTest, AnswersInTheMakingAreReserved) {
  ServeOptions options = Unlimited();
  options.http.max_buffered_bytes = size_t{2} << 30;
  TestServer server(options);
  Json whole = Endless();
  whole["stream"] = false;
  whole["logprobs"] = 20;
  HttpClient first = server.Client();
  first.SendRequest("POST", "/v1/completions", ToText(whole));
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_sequences_running") == 1; }));
  const double reserved = server.Metric("denseformer_reserved_bytes");
  EXPECT_GT(reserved, 20.0 * (1 << 20) * sizeof(TokenProbability));
  EXPECT_GE(server.Metric("denseformer_buffered_bytes"), reserved);
  const HttpClient::Answer refused = server.Post("/v1/completions", whole);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_NE(refused.body.find("try again later"), std::string::npos) << refused.body;
  EXPECT_NE(refused.Header("retry-after"), "");
  EXPECT_EQ(server.Metric("denseformer_rejected_total{reason=\"buffers\"}"), 1);
  EXPECT_EQ(server.Metric("denseformer_reserved_bytes"), reserved);
  // Never so many.
  Json many = whole;
  many["n"] = 2;
  const HttpClient::Answer never = server.Post("/v1/completions", many);
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_NE(never.body.find("or stream"), std::string::npos) << never.body;
  // What takes little, and a stream, which is not collected, have room.
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}, {"logprobs", 20}}).status, 200);
  many["stream"] = true;
  HttpClient stream = StartStream(server, many);
  EXPECT_LT(server.Metric("denseformer_reserved_bytes"), reserved + 50000);
  stream.Close();
  first.Close();
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_reserved_bytes") == 0; }));
  EXPECT_EQ(server.Metric("denseformer_buffered_bytes"), 0);
}

TEST(ServeLimitsTest, ClientThatSendsAheadAndLeavesIsNoticed) {
  TestServer server(Unlimited());
  Json whole = Endless();
  whole["stream"] = false;
  HttpClient client = server.Client();
  client.SendRequest("POST", "/v1/completions", ToText(whole));
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_sequences_running") == 1; }));
  const std::string ahead = "GET /health HTTP/1.1\r\nX: " + std::string(1000, 'x') + "\r\n\r\n";
  for (int n = 0; n < 10; ++n) client.Send(ahead);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return Idle(server); }));
  // More than is ever kept: also without leaving.
  HttpClient flood = server.Client();
  flood.SendRequest("POST", "/v1/completions", ToText(whole));
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_sequences_running") == 1; }));
  try {
    for (int n = 0; n < 100; ++n) flood.Send(ahead);
  } catch (const Error&) {  // cut off while it sends
  }
  EXPECT_TRUE(Eventually([&] { return Idle(server); }));
}

// Simple clients end their side of the connection after the request and wait for the answer.
TEST(ServeLimitsTest, HalfClosedClientsGetTheirAnswers) {
  ServeOptions options = Unlimited();
  options.engine.max_sequences = 1;  // so that all others wait in the queue
  const TestServer server(options);
  const Json body = {{"prompt", "ab"}, {"max_tokens", 30}, {"seed", 3}, {"ignore_eos", true}};
  const Json streamed = [&] {
    Json stream = body;
    stream["stream"] = true;
    return stream;
  }();
  const Json alone = server.Complete(body);
  const std::string text = alone["choices"][0]["text"];
  HttpClient running = StartStream(server);
  const auto half = [&](const Json& request) {
    HttpClient client = server.Client();
    client.SendRequest("POST", "/v1/completions", ToText(request));
    client.EndSending();
    return client;
  };
  HttpClient whole = half(body), stream = half(streamed);
  Json large = body;  // more than the system takes at once
  large.update({{"prompt", std::string(10, 'a')}, {"n", 100}, {"echo", true}, {"logprobs", 20}});
  HttpClient longer = half(large);
  HttpClient two = server.Client();  // one after the other, both sent at once
  two.SendRequest("POST", "/v1/completions", ToText(body));
  two.SendRequest("POST", "/v1/completions", ToText(streamed));
  two.EndSending();
  HttpClient old = server.Client();
  const std::string old_body = ToText(streamed);
  old.Send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                       old_body.size(), old_body));
  EXPECT_EQ(old.ReceiveHead().status, 200);
  old.EndSending();
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_sequences_waiting") == 104; }));
  running.Close();
  EXPECT_EQ(Json::parse(whole.Receive().body)["choices"][0]["text"], text);
  EXPECT_TRUE(whole.ReceiveEnd());
  EXPECT_EQ(stream.ReceiveHead().status, 200);
  EXPECT_EQ(testing::StreamedText(testing::ReadStream(stream), 0), text);
  EXPECT_EQ(Json::parse(longer.Receive().body)["choices"].size(), 100u);
  EXPECT_EQ(Json::parse(two.Receive().body)["choices"][0]["text"], text);
  EXPECT_EQ(two.ReceiveHead().status, 200);
  EXPECT_EQ(testing::StreamedText(testing::ReadStream(two), 0), text);
  EXPECT_TRUE(two.ReceiveEnd());
  EXPECT_EQ(testing::StreamedText(testing::ReadStream(old), 0), text);
}

// Those that have left altogether free their places all the same: while they wait, while they run,
// streamed or not.
TEST(ServeLimitsTest, ClosedClientsAreToldFromHalfClosedOnes) {
  ServeOptions options = Unlimited();
  options.engine.max_sequences = 1;
  const TestServer server(options);
  for (const bool stream : {true, false}) {
    Json body = Endless();
    body["stream"] = stream;
    std::vector<HttpClient> clients;
    for (int n = 0; n < 3; ++n) {
      clients.push_back(server.Client());
      clients.back().SendRequest("POST", "/v1/completions", ToText(body));
      if (n == 2) clients.back().EndSending();  // and then closes
    }
    EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_sequences_waiting") == 2; }));
    clients.clear();
    EXPECT_TRUE(Eventually([&] { return Idle(server); }));
    EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_connections") == 1; }));
  }
  // HTTP/1.0 has no interim answer to find out with.
  const std::string body = ToText({{"prompt", "a"}, {"max_tokens", 1 << 20}, {"context", "slide"}});
  HttpClient old = server.Client();
  old.Send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                       body));
  old.EndSending();
  EXPECT_TRUE(old.ReceiveEnd());
  EXPECT_TRUE(Eventually([&] { return Idle(server); }));
}

TEST(ServeLimitsTest, LongEchoIsNoReasonToCutAReaderOff) {
  ServeOptions options = SmallOptions();
  options.http.max_output_bytes = 16 << 10;
  const TestServer server(options);
  for (const int max_tokens : {0, 3}) {
    const Json body = {{"prompt", std::string(44, 'a')},
                       {"n", 3},
                       {"max_tokens", max_tokens},
                       {"echo", true},
                       {"logprobs", 20},
                       {"seed", 1}};
    const Json whole = server.Complete(body);
    const std::vector<Json> chunks = testing::Stream(server, body);
    ASSERT_GE(chunks.size(), 3u);
    EXPECT_GT(ToText(chunks.front()).size(), options.http.max_output_bytes);
    for (int index = 0; index < 3; ++index) {
      EXPECT_EQ(testing::StreamedText(chunks, index),
                whole["choices"][static_cast<size_t>(index)]["text"]);
    }
  }
}

TEST(ServeLimitsTest, DrainFinishesWhatIsInWork) {
  ServeOptions options = Unlimited();
  options.drain_seconds = 300;  // sanitizers are slow
  TestServer server(options);
  Json body = Endless();
  body["max_tokens"] = 2000;
  HttpClient stream = StartStream(server, body);
  HttpClient idle = server.Client();
  EXPECT_EQ(idle.Call("GET", "/health").status, 200);
  server.Drain();
  EXPECT_TRUE(Eventually([&] {
    const HttpClient::Answer answer = idle.Call("GET", "/health");
    return answer.status == 503 && answer.body.find("draining") != std::string::npos;
  }));
  const HttpClient::Answer refused = server.Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.Header("retry-after"), "");
  // The stream comes to its end.
  int chunks = 1;
  std::string event;
  while ((event = stream.ReceiveEvent()) != "[DONE]") ++chunks;
  EXPECT_GT(chunks, 1000);
  server.Join();
  EXPECT_EQ(server.failure(), "");
}

bool Draining(const TestServer& server) {
  return server.Client().Call("GET", "/health").body.find("draining") != std::string::npos;
}

// The last second is for clients to take the end of their answers.
TEST(ServeLimitsTest, DrainEndsInTime) {
  FakeClock clock;
  ServeOptions options = Unlimited();
  options.http.now = clock.now();
  options.queue.request_seconds = 0;
  options.drain_seconds = 10;
  TestServer server(options);
  HttpClient stream = StartStream(server);
  server.Drain();
  EXPECT_TRUE(Eventually([&] { return Draining(server); }));
  clock.Advance(8.9);
  LetTicksPass();
  EXPECT_TRUE(Draining(server));
  EXPECT_EQ(server.Metric("denseformer_cancelled_total{reason=\"shutdown\"}"), 0);
  clock.Advance(0.2);
  std::string last, event;
  for (int n = 0; n < 100000; ++n) {
    if ((event = stream.ReceiveEvent()).empty() || event == "[DONE]") break;
    last = event;
  }
  EXPECT_NE(last.find("shutting down"), std::string::npos) << last;
  EXPECT_TRUE(Eventually([&] { return server.ended(); }));
}

TEST(ServeLimitsTest, DrainDoesNotWaitForClientsBeyondItsTime) {
  FakeClock clock;
  ServeOptions options = SmallOptions();
  options.http.now = clock.now();
  options.http.write_seconds = 1e6;
  options.http.min_bytes_per_second = 0;
  options.drain_seconds = 10;
  TestServer server(options);
  HttpClient deaf = server.Client();
  deaf.SendRequest("POST", "/v1/completions", ToText(LongAnswer()));
  EXPECT_TRUE(Eventually([&] { return server.Metric("denseformer_unsent_bytes") > (1 << 20); }));
  server.Drain();
  EXPECT_TRUE(Eventually([&] { return Draining(server); }));
  clock.Advance(9.9);
  LetTicksPass();
  EXPECT_FALSE(server.ended());
  clock.Advance(0.2);
  EXPECT_TRUE(Eventually([&] { return server.ended(); }));
}

TEST(ServeLimitsTest, LoadingIsSaid) {
  ServeOptions options = SmallOptions();
  std::promise<void> go;
  options.load = [waiting = go.get_future().share()] {
    waiting.wait();
    return ByteModel();
  };
  TestServer server(options, /*wait=*/false);
  const HttpClient::Answer health = server.Client().Call("GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_NE(health.body.find("loading"), std::string::npos);
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}}).status, 503);
  EXPECT_EQ(server.Client().Call("GET", "/v1/models").status, 503);
  EXPECT_EQ(server.Client().Call("GET", "/metrics").status, 200);
  go.set_value();
  EXPECT_TRUE(Eventually([&] { return server.Client().Call("GET", "/health").status == 200; }));
}

TEST(ServeLimitsTest, FailureOfLoadingEndsTheServer) {
  ServeOptions options = SmallOptions();
  options.load = []() -> LanguageModel { throw Error(ErrorCode::kNotFound, "no such run"); };
  TestServer server(options, /*wait=*/false);
  server.Join();
  EXPECT_EQ(server.failure(), "no such run");
}

}  // namespace
}  // namespace denseformer

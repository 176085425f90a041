// Every answer is the one that its client would have got alone; random requests do no harm.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/random.h"
#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::Eventually;
using testing::SmallOptions;
using testing::Stream;
using testing::TestServer;

Json SomeRequest(Random& random) {
  std::string prompt;
  for (uint64_t n = random.Below(12); n > 0; --n) {
    prompt += static_cast<char>('a' + random.Below(26));
  }
  Json body = {{"prompt", prompt},
               {"max_tokens", 1 + random.Below(24)},
               {"seed", random.Below(1000)},
               {"temperature", static_cast<double>(random.Below(3)) / 2}};
  if (random.Below(2) == 0) body["logprobs"] = random.Below(4);
  if (random.Below(3) == 0) body["echo"] = true;
  if (random.Below(3) == 0) body["n"] = 2;
  if (random.Below(4) == 0) body["stop"] = "e";
  return body;
}

// What a stream says, without the names and times that differ.
std::string Content(const std::vector<Json>& chunks) {
  std::string content;
  for (const Json& chunk : chunks) {
    if (chunk["choices"].size() == 1) content += ToText(chunk["choices"]) + "\n";
  }
  return content;
}

// Events of several choices come in the order of the steps; each choice by itself is compared.
std::string Sorted(std::vector<Json> chunks) {
  std::stable_sort(chunks.begin(), chunks.end(), [](const Json& a, const Json& b) {
    return a["choices"][0]["index"] < b["choices"][0]["index"];
  });
  return Content(chunks);
}

TEST(ServeCompanyTest, StreamsAreTheSameBytesInCompany) {
  ServeOptions options = SmallOptions();
  options.engine.max_sequences = 8;
  TestServer server(options);
  Random random(7);
  std::vector<Json> bodies;
  std::vector<std::string> alone;
  for (int n = 0; n < 24; ++n) {
    bodies.push_back(SomeRequest(random));
    alone.push_back(Sorted(Stream(server, bodies.back())));
  }
  std::vector<std::thread> threads;
  std::vector<std::string> together(bodies.size());
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (size_t n = static_cast<size_t>(t); n < bodies.size(); n += 6) {
        together[n] = Sorted(Stream(server, bodies[n]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t n = 0; n < bodies.size(); ++n) EXPECT_EQ(together[n], alone[n]) << ToText(bodies[n]);
}

// Bytes that are a little, or very, wrong.
std::string RandomBytes(Random& random) {
  std::string body = ToText(SomeRequest(random));
  for (uint64_t n = random.Below(4); n > 0; --n) {
    body[random.Below(body.size())] = static_cast<char>(random.Below(256));
  }
  static constexpr const char* kPaths[] = {"/v1/completions",
                                           "/v1/chat/completions",
                                           "/tokenize",
                                           "/detokenize",
                                           "/health",
                                           "/%00",
                                           "/"};
  std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", kPaths[random.Below(std::size(kPaths))],
      body.size() + (random.Below(8) == 0 ? random.Below(3) : 0), body);
  if (random.Below(4) == 0) {
    request[random.Below(request.size())] = static_cast<char>(random.Below(256));
  }
  return random.Below(8) == 0 ? request.substr(0, random.Below(request.size())) : request;
}

TEST(ServeCompanyTest, RandomRequestsDoNoHarm) {
  ServeOptions options = SmallOptions();
  options.http.read_seconds = 0.2;
  TestServer server(options);
  const Json body = {{"prompt", "steady"}, {"max_tokens", 30}, {"seed", 5}};
  const std::string expected = Content(Stream(server, body));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Random random(100 + t);
      for (int n = 0; n < 100; ++n) {
        HttpClient client = server.Client(5);
        try {
          client.Send(RandomBytes(random));
          if (random.Below(4) > 0) client.Receive();
        } catch (const Error&) {
          // Whatever was sent, an end of the connection is an answer.
        }
      }
    });
  }
  for (int n = 0; n < 10; ++n) EXPECT_EQ(Content(Stream(server, body)), expected);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Eventually([&] {
    return server.Metric("denseformer_connections") == 1 &&
           server.Metric("denseformer_sequences_running") == 0;
  }));
  EXPECT_EQ(Content(Stream(server, body)), expected);
}

}  // namespace
}  // namespace denseformer

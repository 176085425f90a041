// A server on loopback, for the tests of this folder. No part of the library.
#ifndef DENSEFORMER_SERVE_TESTING_H_
#define DENSEFORMER_SERVE_TESTING_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "infer/testing.h"
#include "serve/client.h"
#include "serve/json.h"
#include "serve/server.h"

namespace denseformer::testing {

// Waits until `holds`, at most 20 seconds.
template <class F>
bool Eventually(F holds) {
  for (int n = 0; n < 2000; ++n) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A clock that stands still until it is moved, for HttpOptions::now.
class FakeClock {
 public:
  void Advance(double seconds) { *time_ += static_cast<int64_t>(seconds * 1e9); }
  std::function<std::chrono::steady_clock::time_point()> now() const {
    return [time = time_] {
      return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(*time));
    };
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> time_ = std::make_shared<std::atomic<int64_t>>(1);
};

// Some ticks of a server, in which it must not do something. Where it is slow, it is not seen.
inline void LetTicksPass() { std::this_thread::sleep_for(std::chrono::milliseconds(350)); }

inline ServeOptions SmallOptions(int context = 48) {
  ServeOptions options;
  options.http.port = 0;
  options.model_name = "bytes";
  options.load = [context] { return ByteModel("1x1", context); };
  return options;
}

// Runs from the constructor to the destructor, which drains it.
class TestServer {
 public:
  explicit TestServer(const ServeOptions& options = SmallOptions(), bool wait = true)
      : server_(options), thread_([this] { Run(); }) {
    if (!wait) return;
    EXPECT_TRUE(Eventually([this] { return Client().Call("GET", "/health").status == 200; }));
  }
  ~TestServer() { Stop(); }

  void Drain() { server_.Drain(); }
  // Waits for the end of a drain.
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  void Stop() {
    if (thread_.joinable()) Drain();
    Join();
  }
  // Whether it has ended by itself.
  bool ended() const { return ended_; }
  const std::string& failure() const { return failure_; }
  int port() const { return server_.port(); }
  HttpClient Client(double seconds = 20) const {
    return HttpClient("127.0.0.1", server_.port(), seconds);
  }

  HttpClient::Answer Post(const std::string& path, const Json& body) const {
    return Client().Call("POST", path, ToText(body));
  }
  // The answer to a request that must succeed.
  Json Complete(const Json& body, const std::string& path = "/v1/completions") const {
    const HttpClient::Answer answer = Post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body);
  }
  // The value of a metric, by its name and label as the text has them.
  double Metric(const std::string& name) const {
    const std::string text = "\n" + Client().Call("GET", "/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
  }

 private:
  void Run() {
    try {
      server_.Run();
    } catch (const Error& error) {
      failure_ = error.what();
    }
    ended_ = true;
  }

  Server server_;
  std::string failure_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// The chunks of a stream, to its end.
inline std::vector<Json> ReadStream(HttpClient& client) {
  std::vector<Json> chunks;
  for (std::string event; !(event = client.ReceiveEvent()).empty() && event != "[DONE]";) {
    chunks.push_back(Json::parse(event));
    EXPECT_EQ(ToText(chunks.back()), event);
  }
  EXPECT_EQ(client.ReceivePiece(), "");
  return chunks;
}

inline std::vector<Json> Stream(const TestServer& server, Json body,
                                const std::string& path = "/v1/completions") {
  body["stream"] = true;
  HttpClient client = server.Client();
  client.SendRequest("POST", path, ToText(body));
  EXPECT_EQ(client.ReceiveHead().status, 200);
  return ReadStream(client);
}

// The text of choice `index`, and why it ended.
inline std::string StreamedText(const std::vector<Json>& chunks, int index,
                                std::string* finish = nullptr) {
  std::string text;
  for (const Json& chunk : chunks) {
    for (const Json& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      text += choice.contains("delta") ? choice["delta"].value("content", "")
                                       : choice["text"].get<std::string>();
      if (finish != nullptr && choice["finish_reason"].is_string()) {
        *finish = choice["finish_reason"].get<std::string>();
      }
    }
  }
  return text;
}

}  // namespace denseformer::testing

#endif  // DENSEFORMER_SERVE_TESTING_H_

// The protocol itself: what is malformed, too large, too slow or too much.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "base/error_testing.h"
#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::Eventually;
using testing::SmallOptions;
using testing::TestServer;

ServeOptions Strict() {
  ServeOptions options = SmallOptions();
  options.http.max_body_bytes = 20000;
  options.http.max_header_bytes = 2000;
  options.http.read_seconds = 0.5;
  options.http.idle_seconds = 1;
  options.http.max_connections = 20;
  return options;
}

class HttpServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer(Strict()); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  // What the server says to these bytes; it closes the connection afterwards.
  static HttpClient::Answer Raw(const std::string& bytes) {
    HttpClient client = server_->Client();
    client.Send(bytes);
    HttpClient::Answer answer = client.Receive();
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_TRUE(client.ReceiveEnd());
    return answer;
  }
  static void ExpectAlive() { EXPECT_EQ(server_->Client().Call("GET", "/health").status, 200); }

  static TestServer* server_;
};
TestServer* HttpServerTest::server_ = nullptr;

TEST_F(HttpServerTest, MalformedRequests) {
  for (const std::string bytes :
       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n", "HELLO\r\n\r\n",
        "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nBad Header : x\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n", "POST /tokenize HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"}) {
    const HttpClient::Answer answer = Raw(bytes);
    EXPECT_EQ(answer.status, 400) << bytes;
    EXPECT_EQ(Json::parse(answer.body)["error"]["type"], "invalid_request_error");
  }
  ExpectAlive();
}

// A body whose end the server does not see must not become the next request of the connection.
TEST_F(HttpServerTest, BodiesInOtherCodingsAreNoRequests) {
  const std::string inside = "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n";
  for (const char* head :
       {"HTTP/1.1\r\nTransfer-Encoding: gzip", "HTTP/1.1\r\nTransfer-Encoding: identity",
        "HTTP/1.1\r\nTransfer-Encoding: chunked, identity",
        "HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
        "HTTP/1.1\r\nTransfer-Encoding: xchunked\r\nContent-Length: 2",
        "HTTP/1.0\r\nTransfer-Encoding: chunked"}) {
    const HttpClient::Answer answer = Raw(fmt::format("POST /tokenize {}\r\n\r\n{}", head, inside));
    EXPECT_EQ(answer.status, 501) << head;
    EXPECT_NE(answer.body.find("expected 'chunked' in HTTP/1.1"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(Raw("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n").status, 400);
  ExpectAlive();
}

TEST_F(HttpServerTest, LinesOfChunksAndTrailersAreBounded) {
  const std::string head = "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string whole = "f;name=value\r\n{\"prompt\": \"a\"}\r\n0\r\n";
  HttpClient fine = server_->Client();
  fine.Send(head + whole + "Checksum: x\r\n\r\n");
  EXPECT_EQ(fine.Receive().status, 200);
  for (const std::string& begin : {head + "f;", head + whole + "Checksum: "}) {
    HttpClient client = server_->Client();
    client.Send(begin + std::string(100000, 'x'));  // and no end of the line
    EXPECT_EQ(client.Receive().status, 431);
    EXPECT_TRUE(client.ReceiveEnd());
  }
  ExpectAlive();
}

TEST(HttpTargetTest, Path) {
  EXPECT_EQ(TargetPath("/v1/models/a?b=/c"), "/v1/models/a");
  EXPECT_EQ(TargetPath("/v1/models/a%20b%C3%a9"), "/v1/models/a bé");
  EXPECT_EQ(TargetPath("/%"), "/%");
  EXPECT_EQ(TargetPath("/%4"), "/%4");
  EXPECT_EQ(TargetPath("/%zz%41"), "/%zzA");
  EXPECT_EQ(TargetPath("http://localhost:8080/health?x"), "/health");
  EXPECT_EQ(TargetPath("http://localhost"), "/");
  EXPECT_EQ(TargetPath("http://localhost?x=/y"), "/");
  EXPECT_EQ(TargetPath("*"), "*");
}

TEST(HttpTextTest, DateAndAuthority) {
  EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(HttpAuthority("127.0.0.1", 8080), "127.0.0.1:8080");
  EXPECT_EQ(HttpAuthority("::1", 8080), "[::1]:8080");
}

TEST_F(HttpServerTest, EveryAnswerHasADate) {
  for (const char* path : {"/health", "/none"}) {
    EXPECT_TRUE(server_->Client().Call("GET", path).Header("date").ends_with(" GMT")) << path;
  }
}

TEST_F(HttpServerTest, TooLarge) {
  EXPECT_EQ(Raw("GET / HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(Raw("GET /" + std::string(5000, 'x') + " HTTP/1.1\r\n\r\n").status, 431);
  EXPECT_EQ(Raw("POST /tokenize HTTP/1.1\r\nContent-Length: 30000\r\n\r\n").status, 413);
  EXPECT_EQ(Raw("POST /tokenize HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n").status,
            400);
  // Also where the length is not said before, and where all of it is sent.
  std::string chunked = "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int n = 0; n < 10; ++n) chunked += "1000\r\n" + std::string(0x1000, 'x') + "\r\n";
  EXPECT_EQ(Raw(chunked).status, 413);
  EXPECT_EQ(
      Raw("POST /tokenize HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + std::string(200000, 'x'))
          .status,
      413);
  ExpectAlive();
}

TEST_F(HttpServerTest, TooSlow) {
  HttpClient half = server_->Client();
  half.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_EQ(half.Receive().status, 408);
  EXPECT_TRUE(half.ReceiveEnd());
  HttpClient drops = server_->Client();
  const auto trickle = [&] {
    for (int n = 0; n < 200; ++n) {
      drops.Send(n == 0 ? "GET / HTTP/1.1\r\n" : "A: b\r\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  EXPECT_ANY_THROW(trickle());  // the server has ended it long before
  HttpClient idle = server_->Client();
  EXPECT_EQ(idle.Call("GET", "/health").status, 200);
  EXPECT_TRUE(idle.ReceiveEnd());
  ExpectAlive();
}

TEST(HttpTimeTest, SilentConnectionsEndLikeSlowRequestsNotLikeIdleOnes) {
  ServeOptions options = SmallOptions();
  options.http.read_seconds = 0.3;
  options.http.idle_seconds = 1e6;
  const TestServer server(options);
  HttpClient asks_later = server.Client();
  EXPECT_EQ(asks_later.Call("GET", "/health").status, 200);
  EXPECT_TRUE(server.Client().ReceiveEnd());
  EXPECT_EQ(asks_later.Call("GET", "/health").status, 200);
}

TEST(HttpMemoryTest, BodyIsFreedAfterItsHandler) {
  const std::unique_ptr<HttpServer> server = HttpServer::Listen({.port = 0});
  server->on_request = [&](const std::shared_ptr<Exchange>& exchange) {
    EXPECT_EQ(exchange->request().body.size(), 100000u);
    server->Post([exchange] {
      EXPECT_LT(exchange->request().body.capacity(), 100u);
      exchange->Send({});
    });
  };
  std::thread thread([&] { server->Run(); });
  HttpClient client("127.0.0.1", server->port());
  EXPECT_EQ(client.Call("POST", "/", std::string(100000, 'x')).status, 200);
  server->Post([&] { server->Stop(); });
  thread.join();
}

TEST(HttpMemoryTest, BodiesTogetherAreBounded) {
  ServeOptions options = SmallOptions();
  options.http.max_buffered_bytes = 300 << 10;
  const TestServer server(options);
  const std::string body = ToText({{"prompt", std::string(200 << 10, 'a')}});
  HttpClient first = server.Client();
  const std::string head =
      fmt::format("POST /tokenize HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.size());
  first.Send(head + body.substr(0, body.size() - 1));
  EXPECT_TRUE(
      Eventually([&] { return server.Metric("denseformer_buffered_bytes") > (200 << 10); }));
  HttpClient second = server.Client();
  second.Send(head + body.substr(0, body.size() - 1));
  const HttpClient::Answer refused = second.Receive();
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(refused.Header("retry-after"), "1");
  EXPECT_EQ(server.Post("/tokenize", {{"prompt", "small"}}).status, 200);
  first.Send(body.substr(body.size() - 1));
  EXPECT_EQ(first.Receive().status, 200);
  EXPECT_TRUE(
      Eventually([&] { return server.Metric("denseformer_buffered_bytes") < (100 << 10); }));
  EXPECT_EQ(server.Client().Call("POST", "/tokenize", body).status, 200);
}

TEST_F(HttpServerTest, TooManyConnections) {
  std::vector<HttpClient> clients;
  for (int n = 0; n < 20; ++n) {
    clients.push_back(server_->Client());
    EXPECT_EQ(clients.back().Call("GET", "/health").status, 200);
  }
  HttpClient more = server_->Client();
  const HttpClient::Answer answer = more.Receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("more than 20 connections"), std::string::npos);
  more.Close();
  clients.clear();
  EXPECT_TRUE(Eventually([&] { return server_->Metric("denseformer_connections") == 1; }));
}

TEST_F(HttpServerTest, ConnectionsAreKeptOrClosedAsAsked) {
  HttpClient client = server_->Client();
  for (int n = 0; n < 50; ++n) EXPECT_EQ(client.Call("GET", "/health").status, 200);
  EXPECT_EQ(client.Call("GET", "/health", "", {{"Connection", "close"}}).Header("connection"),
            "close");
  EXPECT_TRUE(client.ReceiveEnd());
  // Requests sent at once are answered in order.
  HttpClient ahead = server_->Client();
  std::string requests;
  for (int n = 0; n < 30; ++n) {
    const std::string body = ToText({{"prompt", std::string(1, static_cast<char>('A' + n))}});
    requests +=
        fmt::format("POST /tokenize HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  }
  ahead.Send(requests);
  for (int n = 0; n < 30; ++n) {
    EXPECT_EQ(Json::parse(ahead.Receive().body)["tokens"], Json::array({'A' + n}));
  }
  // HTTP/1.0: who asks for it is told that the connection stays, and the end of a stream is that of
  // the connection.
  HttpClient old = server_->Client();
  old.Send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.Receive().Header("connection"), "keep-alive");
  const std::string body = R"({"prompt": "a", "max_tokens": 3, "stream": true})";
  old.Send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                       body));
  const HttpClient::Answer answer = old.Receive();
  EXPECT_EQ(answer.Header("transfer-encoding"), "");
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
}

TEST_F(HttpServerTest, HeadAndExpect) {
  HttpClient client = server_->Client();
  client.SendRequest("HEAD", "/health");
  const HttpClient::Answer head = client.ReceiveHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.Header("content-length"), "0");
  HttpClient expects = server_->Client();
  expects.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  expects.Send("{\"prompt\": \"a\"}");
  EXPECT_EQ(expects.Receive().status, 200);
}

TEST_F(HttpServerTest, ConnectsAndDisconnects) {
  for (int n = 0; n < 200; ++n) {
    HttpClient client = server_->Client();
    if (n % 4 == 1) client.Send("POST /v1/completions HTTP/1.1\r\nContent-Le");
    if (n % 4 == 2) client.SendRequest("POST", "/v1/completions", R"({"prompt": "a"})");
    if (n % 4 == 3) {
      client.SendRequest("POST", "/v1/completions", R"({"prompt": "a", "stream": true})");
      client.ReceiveHead();
    }
  }
  EXPECT_TRUE(Eventually([&] {
    return server_->Metric("denseformer_connections") == 1 &&
           server_->Metric("denseformer_sequences_running") == 0;
  }));
  ExpectAlive();
}

TEST(HttpListenTest, AddressInUseAndUnknown) {
  const TestServer server;
  ServeOptions options = SmallOptions();
  options.http.port = server.port();
  ExpectError(ErrorCode::kIo, "choose another --port", [&] { Server second(options); });
  options.http.port = 0;
  options.http.host = "no.such.host.invalid";
  ExpectError(ErrorCode::kUsage, "no.such.host.invalid", [&] { Server second(options); });
}

}  // namespace
}  // namespace denseformer

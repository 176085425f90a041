// Who may ask: keys, Host headers, pages of other sites, over real HTTP on loopback.
#include <gtest/gtest.h>

#include <string>

#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::SmallOptions;
using testing::TestServer;

TEST(ServeAccessTest, ApiKeys) {
  ServeOptions options = SmallOptions();
  options.api_keys = {"first-key", "second"};
  TestServer server(options);
  const auto status = [&](const char* path, const std::string& authorization) {
    HttpHeaders headers;
    if (!authorization.empty()) headers.emplace_back("Authorization", authorization);
    return server.Client().Call("GET", path, "", headers).status;
  };
  EXPECT_EQ(status("/health", ""), 200);
  EXPECT_EQ(status("/v1/models", ""), 401);
  EXPECT_EQ(status("/metrics", ""), 401);
  EXPECT_EQ(status("/nowhere", ""), 401);
  EXPECT_EQ(status("/v1/models", "Bearer first-key"), 200);
  EXPECT_EQ(status("/v1/models", "Bearer second"), 200);
  EXPECT_EQ(status("/v1/models", "bearer second"), 200);
  EXPECT_EQ(status("/v1/models", "BEARER second"), 200);
  for (const char* wrong :
       {"Bearer ", "Bearer first-ke", "Bearer first-keyy", "first-key", "Bearer firstxkey",
        "Bearer secondsecond", "Bearer SECOND", "Basic first-key"}) {
    EXPECT_EQ(status("/v1/models", wrong), 401) << wrong;
  }
  EXPECT_EQ(status("/nowhere", "Bearer second"), 404);
}

TEST(ServeAccessTest, NamesOfOtherMachines) {
  const auto status = [](const TestServer& server, const std::string& host,
                         const std::string& path = "/v1/models") {
    HttpClient client = server.Client();
    client.Send(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer key\r\n\r\n",
                            path, host));
    return client.Receive().status;
  };
  ServeOptions options = SmallOptions();
  options.allowed_hosts = {"model.internal"};
  const TestServer server(options);
  for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.1.2.3:1", "[::1]",
                           "[::1]:8080", "", "model.internal", "Model.Internal:80"}) {
    EXPECT_EQ(status(server, host), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                           "127.evil.example", "localhost.evil.example", "128.0.0.1", "[::2]"}) {
    EXPECT_EQ(status(server, host), 403) << host;
    EXPECT_EQ(status(server, host, "/health"), 200) << host;
  }
  options.api_keys = {"key"};
  const TestServer keyed(options);
  EXPECT_EQ(status(keyed, "evil.example"), 200);
}

TEST(ServeAccessTest, PagesOfOtherOrigins) {
  ServeOptions options = SmallOptions();
  options.cors_origin = "https://example.org";
  options.api_keys = {"key"};
  TestServer server(options);
  const HttpHeaders allowed = {{"Origin", "https://example.org"}};
  const HttpClient::Answer preflight =
      server.Client().Call("OPTIONS", "/v1/completions", "", allowed);
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.Header("content-length"), "");
  EXPECT_EQ(preflight.Header("access-control-allow-origin"), "https://example.org");
  // The openai package for JavaScript adds X-Stainless-OS and others.
  EXPECT_EQ(preflight.Header("access-control-allow-headers"), "Authorization, Content-Type, *");
  EXPECT_EQ(preflight.Header("access-control-expose-headers"), "Retry-After");
  HttpHeaders with_key = allowed;
  with_key.emplace_back("Authorization", "Bearer key");
  for (const char* body : {R"({"prompt": "a", "max_tokens": 1})", R"({"prompt": 5})",
                           R"({"prompt": "a", "max_tokens": 1, "stream": true})"}) {
    EXPECT_EQ(server.Client()
                  .Call("POST", "/v1/completions", body, with_key)
                  .Header("access-control-allow-origin"),
              "https://example.org")
        << body;
  }
  const HttpHeaders other = {{"Origin", "https://evil.example"}};
  EXPECT_EQ(server.Client().Call("GET", "/health", "", other).Header("access-control-allow-origin"),
            "");
  EXPECT_EQ(server.Client().Call("OPTIONS", "/v1/completions", "", other).status, 401);
}

// A form or a script of another site can send a request, although it cannot read the answer.
TEST(ServeAccessTest, RequestsOfPagesOfOtherSites) {
  const std::string body = R"({"prompt": "a"})";
  const auto status = [&](const ServeOptions& options, const HttpHeaders& headers) {
    const TestServer server(options);
    HttpHeaders key = headers;
    if (!options.api_keys.empty()) key.emplace_back("Authorization", "Bearer k");
    EXPECT_EQ(server.Client().Call("GET", "/v1/models", "", key).status, 200);  // a link to it
    return server.Client().Call("POST", "/v1/completions", body, key).status;
  };
  const HttpHeaders other = {{"Origin", "http://a.example"}, {"Sec-Fetch-Site", "cross-site"}};
  ServeOptions options = SmallOptions();
  EXPECT_EQ(status(options, other), 403);
  EXPECT_EQ(status(options, {{"Sec-Fetch-Site", "same-origin"}}), 200);
  options.cors_origin = "http://a.example";
  EXPECT_EQ(status(options, other), 200);
  options.cors_origin = "http://b.example";
  EXPECT_EQ(status(options, other), 403);
  options.api_keys = {"k"};  // which the page does not know
  EXPECT_EQ(status(options, other), 200);
}

}  // namespace
}  // namespace denseformer

// The page's files and the depth view, over HTTP. tests/browser opens the page.
#include <gtest/gtest.h>

#include <cmath>

#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::TestServer;

TEST(ServePageTest, FilesComeWithTheirTypesAndPolicy) {
  ServeOptions options = testing::SmallOptions();
  options.api_keys = {"key"};
  const TestServer server(options);
  for (const auto& [path, type] : std::vector<std::pair<const char*, const char*>>{
           {"/", "text/html"}, {"/page.css", "text/css"}, {"/page.js", "text/javascript"}}) {
    const HttpClient::Answer answer = server.Client().Call("GET", path);
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.Header("content-type").starts_with(type)) << path;
    EXPECT_NE(answer.Header("content-security-policy").find("default-src 'none'"),
              std::string::npos);
    EXPECT_EQ(answer.body.find("http://"), std::string::npos) << path << " loads from elsewhere";
    EXPECT_EQ(answer.body.find("https://"), std::string::npos) << path << " loads from elsewhere";
    EXPECT_GT(answer.body.size(), 500u);
  }
}

TEST(ServePageTest, DepthOfAToken) {
  const TestServer server;
  const Json view =
      server.Complete({{"prompt", "ab"}, {"tokens", {'c'}}, {"next", 'd'}, {"top", 2}}, "/depth");
  EXPECT_EQ(view["token"], "c");
  EXPECT_EQ(view["position"], 2);
  const int depth = view["depth"].get<int>();
  EXPECT_EQ(view["predictions"].size(), static_cast<size_t>(depth) + 1);
  EXPECT_EQ(view["modules"].size(), static_cast<size_t>(depth));
  EXPECT_EQ(view["modules"][0]["contributions"].size(), 2u);  // 1x1: X_0 and X_1
  // The last depth is the model: the same number as the completion's.
  const Json score =
      server.Complete({{"prompt", "abcd"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}});
  EXPECT_NEAR(view["predictions"].back()["next"]["logprob"].get<double>(),
              score["choices"][0]["logprobs"]["token_logprobs"][3].get<double>(), 1e-4);
  EXPECT_EQ(view["predictions"][0]["top"].size(), 2u);
  const auto param = [&](const Json& body) {
    const HttpClient::Answer answer = server.Post("/depth", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return Json::parse(answer.body)["error"]["param"];
  };
  EXPECT_EQ(param({{"prompt", std::string(60, 'a')}}), "tokens");
  EXPECT_EQ(param({{"tokens", {300}}}), "tokens");
  EXPECT_EQ(param({{"next", 257}}), "next");
  EXPECT_EQ(param({{"top", 0}}), "top");
}

TEST(ServePageTest, TokenIdsOfATextGiveItsTokens) {
  const TestServer server;
  const Json body = {{"prompt", "xy"}, {"max_tokens", 10}, {"seed", 2}, {"return_token_ids", true}};
  const Json choice = server.Complete(body)["choices"][0];
  ASSERT_EQ(choice["token_ids"].size(), 10u);
  EXPECT_TRUE(choice["logprobs"].is_null());
  Json ids = Json::array();
  for (const Json& chunk : testing::Stream(server, body)) {
    for (const Json& id : chunk["choices"][0]["token_ids"]) ids.push_back(id);
  }
  EXPECT_EQ(ids, choice["token_ids"]);
  EXPECT_FALSE(server.Complete({{"prompt", "xy"}})["choices"][0].contains("token_ids"));
}

}  // namespace
}  // namespace denseformer

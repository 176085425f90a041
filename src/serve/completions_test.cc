// The interface over real HTTP on loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "denseformer/generator.h"
#include "serve/answer.h"
#include "serve/testing.h"

namespace denseformer {
namespace {

using testing::ByteModel;
using testing::SmallOptions;
using testing::Stream;
using testing::StreamedText;
using testing::TestServer;

class CompletionsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ServeOptions options = SmallOptions();
    options.chat = ChatTemplate::Parse(
        "begin = '<|endoftext|>'\nuser = 'U:{content};'\nassistant = 'A:{content};'\n"
        "generation = 'A:'\nstop = ['zq']\n",
        "chat.toml");
    server_ = new TestServer(options);
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  // The same by the library.
  static Generation Generate(const std::string& prompt, const GenerateOptions& options) {
    return Generator(ByteModel()).Generate(prompt, options);
  }
  static GenerateOptions Sampled(uint64_t seed, int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.seed = seed;
    options.sampling.temperature = 0.7;
    return options;
  }
  // Status, parameter and message of a refused body.
  static void ExpectRefused(const std::string& body, int status, const Json& param,
                            const std::string& part, const char* path = "/v1/completions") {
    const HttpClient::Answer answer = server_->Client().Call("POST", path, body);
    EXPECT_EQ(answer.status, status) << body << answer.body;
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["param"], param) << answer.body;
    EXPECT_NE(error["message"].get<std::string>().find(part), std::string::npos) << answer.body;
    EXPECT_TRUE(error["type"].is_string());
  }

  static TestServer* server_;
};
TestServer* CompletionsTest::server_ = nullptr;

TEST_F(CompletionsTest, GivesTheTextOfTheLibrary) {
  const Json answer = server_->Complete({{"model", "bytes"},
                                         {"prompt", "The"},
                                         {"max_tokens", 20},
                                         {"temperature", 0.7},
                                         {"seed", 5}});
  const Generation expected = Generate("The", Sampled(5, 20));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "bytes");
  EXPECT_EQ(answer["seed"], 5);
  ASSERT_EQ(answer["choices"].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["text"].get<std::string>().size() > 0, true);
  EXPECT_EQ(answer["choices"][0]["index"], 0);
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["completion_tokens"], expected.tokens.size());
  EXPECT_EQ(answer["usage"]["total_tokens"], 3 + expected.tokens.size());
  // By tokens, for the text has replacement characters.
  const Json tokens = server_->Complete({{"prompt", "The"},
                                         {"max_tokens", 20},
                                         {"temperature", 0.7},
                                         {"seed", 5},
                                         {"logprobs", 0}})["choices"][0]["logprobs"]["tokens"];
  ASSERT_EQ(tokens.size(), expected.tokens.size());
  for (size_t n = 0; n < tokens.size(); ++n) {
    const int32_t id = expected.tokens[n];
    const std::string name = id < 0x80   ? std::string(1, static_cast<char>(id))
                             : id == 256 ? "<|endoftext|>"
                                         : fmt::format("bytes:\\x{:02x}", id);
    EXPECT_EQ(tokens[n], name);
  }
}

TEST_F(CompletionsTest, StreamsTheSameText) {
  for (const int seed : {1, 2, 3}) {
    const Json body = {{"prompt", "ab"}, {"max_tokens", 30}, {"seed", seed}, {"n", 3}};
    const Json whole = server_->Complete(body);
    Json with_usage = body;
    with_usage["stream_options"] = {{"include_usage", true}};
    const std::vector<Json> chunks = Stream(*server_, with_usage);
    for (int k = 0; k < 3; ++k) {
      std::string finish;
      EXPECT_EQ(StreamedText(chunks, k, &finish), whole["choices"][k]["text"].get<std::string>());
      EXPECT_EQ(finish, whole["choices"][k]["finish_reason"].get<std::string>());
    }
    for (const Json& chunk : chunks) ASSERT_TRUE(chunk.contains("usage"));
    EXPECT_TRUE(chunks.back()["choices"].empty());
    EXPECT_EQ(chunks.back()["usage"], whole["usage"]);
    EXPECT_TRUE(chunks.front()["usage"].is_null());
    EXPECT_FALSE(Stream(*server_, body).back().contains("usage"));
  }
}

TEST_F(CompletionsTest, ChoiceKIsReproducedAlone) {
  const Json body = {{"prompt", "xy"}, {"max_tokens", 12}, {"seed", 40}};
  Json many = body;
  many["n"] = 4;
  const Json choices = server_->Complete(many)["choices"];
  ASSERT_EQ(choices.size(), 4u);
  for (int k = 0; k < 4; ++k) {
    Json one = body;
    one["seed"] = 40 + k;
    EXPECT_EQ(server_->Complete(one)["choices"][0]["text"], choices[k]["text"]) << k;
  }
  EXPECT_NE(choices[0]["text"], choices[1]["text"]);
  // Without a seed the answer names the one that it took.
  Json unseeded = body;
  unseeded.erase("seed");
  const Json first = server_->Complete(unseeded);
  unseeded["seed"] = first["seed"];
  EXPECT_EQ(server_->Complete(unseeded)["choices"], first["choices"]);
}

TEST_F(CompletionsTest, PromptsOfEveryForm) {
  const auto texts = [&](const Json& prompt) {
    const Json answer = server_->Complete(
        {{"prompt", prompt}, {"max_tokens", 6}, {"temperature", 0}, {"echo", true}});
    std::vector<std::string> all;
    for (const Json& choice : answer["choices"]) all.push_back(choice["text"].get<std::string>());
    return all;
  };
  const std::vector<std::string> one = texts("cat"), other = texts("dog");
  EXPECT_EQ(one[0].substr(0, 3), "cat");
  EXPECT_EQ(texts(Json::array({"cat"})), one);
  EXPECT_EQ(texts(Json::array({"cat", "dog"})), (std::vector<std::string>{one[0], other[0]}));
  EXPECT_EQ(texts(Json::array({99, 97, 116})), one);
  EXPECT_EQ(texts(Json::array({Json::array({99, 97, 116}), Json::array({100, 111, 103})})),
            (std::vector<std::string>{one[0], other[0]}));
  // An empty prompt begins a document.
  EXPECT_EQ(texts(""), texts(Json::array()));
}

TEST_F(CompletionsTest, EchoWithLogprobsAsHarnessesReadIt) {
  const LanguageModel model = ByteModel();
  const std::vector<int32_t> tokens = {'t', 'h', 'e', ' ', 'c', 'a', 't'};
  const std::vector<float> logits = model.Logits(tokens);
  const Json answer = server_->Complete({{"prompt", Json::array({tokens})},
                                         {"temperature", 0},
                                         {"max_tokens", 1},
                                         {"logprobs", 1},
                                         {"seed", 1234},
                                         {"echo", true}});
  const Json logprobs = answer["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["token_logprobs"].size(), tokens.size() + 1);
  ASSERT_EQ(logprobs["top_logprobs"].size(), tokens.size() + 1);
  ASSERT_EQ(logprobs["tokens"].size(), tokens.size() + 1);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  const size_t vocab = static_cast<size_t>(model.config().vocab_size);
  for (size_t n = 1; n < tokens.size(); ++n) {
    const float* row = logits.data() + (n - 1) * vocab;
    double sum = 0;
    for (size_t id = 0; id < vocab; ++id) sum += std::exp(static_cast<double>(row[id]));
    EXPECT_NEAR(logprobs["token_logprobs"][n].get<double>(), row[tokens[n]] - std::log(sum), 1e-4);
    EXPECT_EQ(logprobs["tokens"][n], std::string(1, static_cast<char>(tokens[n])));
    EXPECT_EQ(logprobs["text_offset"][n], n);
    // The chosen token is always there, with the same number.
    const Json& top = logprobs["top_logprobs"][n];
    EXPECT_EQ(top[logprobs["tokens"][n].get<std::string>()], logprobs["token_logprobs"][n]);
  }
  // Greedy: the same number twice.
  double best = -1e9;
  for (const Json& value : logprobs["top_logprobs"].back())
    best = std::max(best, value.get<double>());
  EXPECT_EQ(logprobs["token_logprobs"].back().get<double>(), best);

  const Json alone = server_->Complete(
      {{"prompt", "the cat"}, {"max_tokens", 0}, {"logprobs", 1}, {"echo", true}});
  EXPECT_EQ(alone["choices"][0]["text"], "the cat");
  EXPECT_EQ(alone["choices"][0]["logprobs"]["token_logprobs"].size(), tokens.size());
  EXPECT_EQ(alone["usage"]["completion_tokens"], 0);
}

// Also where the bytes of a text are not UTF-8, of which a model of random weights writes many.
TEST_F(CompletionsTest, OffsetsAreThoseOfTheText) {
  int wrong_bytes = 0;
  for (const int seed : {1, 2, 3, 4}) {
    const Json body = {{"prompt", {0xC3, 0xA9, 0x80, 'a', 0xE2, 0x82}},
                       {"max_tokens", 40},
                       {"logprobs", 0},
                       {"seed", seed},
                       {"temperature", 2},
                       {"ignore_eos", true},
                       {"echo", true}};
    const Json choice = server_->Complete(body)["choices"][0];
    const std::string text = choice["text"].get<std::string>();
    std::vector<std::string> characters;
    for (const char byte : text) {
      if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) characters.emplace_back();
      characters.back() += byte;
    }
    const Json& tokens = choice["logprobs"]["tokens"];
    const Json& offsets = choice["logprobs"]["text_offset"];
    ASSERT_EQ(tokens.size(), 46u);
    for (size_t n = 0; n < tokens.size(); ++n) {
      const auto offset = offsets[n].get<size_t>();
      ASSERT_LT(offset, characters.size()) << n;
      const std::string name = tokens[n].get<std::string>();
      if (name.size() == 1) {
        EXPECT_EQ(characters[offset], name) << n << text;
      }
      wrong_bytes += characters[offset] == "\uFFFD" ? 1 : 0;
    }
    Json streamed = Json::array();
    for (const Json& chunk : Stream(*server_, body)) {
      for (const Json& offset : chunk["choices"][0]["logprobs"]["text_offset"]) {
        streamed.push_back(offset);
      }
    }
    EXPECT_EQ(streamed, offsets);
  }
  EXPECT_GT(wrong_bytes, 10);
}

TEST_F(CompletionsTest, PromptsOfOneRequestDoNotShortenEachOther) {
  Json body = {{"prompt", "a"}, {"max_tokens", 20}, {"seed", 1}, {"ignore_eos", true}};
  const Json alone = server_->Complete(body)["choices"][0];
  body["prompt"] = {"a", std::string(47, 'b')};
  const Json both = server_->Complete(body);
  EXPECT_EQ(both["choices"][0], alone);
  EXPECT_EQ(both["usage"]["completion_tokens"], 20 + 2);
}

// What is reserved for an answer is as much as it takes, and not many times as much.
TEST_F(CompletionsTest, AnswersTakeWhatIsReservedForThem) {
  const LanguageModel model = ByteModel();
  const std::string prompt = "hé \"quoted\"\n\x01";
  for (const int logprobs : {-1, 0, 1, 5, 20}) {
    for (const bool echo : {false, true}) {
      for (const bool ids : {false, true}) {
        Json body = {{"prompt", {prompt, "x"}},
                     {"n", 2},
                     {"max_tokens", 40},
                     {"echo", echo},
                     {"seed", 1},
                     {"temperature", 2},
                     {"return_token_ids", ids},
                     {"ignore_eos", true}};
        if (logprobs >= 0) body["logprobs"] = logprobs;
        CompletionRequest request = ParseCompletion(body, /*chat=*/false, {});
        EncodePrompts(model.tokenizer(), nullptr, model.config().seq_len, {}, request);
        const HttpClient::Answer answer = server_->Post("/v1/completions", body);
        ASSERT_EQ(answer.status, 200) << answer.body;
        const int64_t tokens = 2 * (40 + 35) + (echo ? 2 * 15 : 0);
        const auto held = static_cast<int64_t>(answer.body.size()) +
                          std::max(logprobs, 0) * tokens * int64_t{sizeof(TokenProbability)} +
                          (logprobs >= 0 || ids ? tokens * int64_t{sizeof(TokenRecord)} : 0);
        EXPECT_GT(AnswerBytes(request) + 500, held) << body;  // a head, and the names of members
        EXPECT_LT(AnswerBytes(request), 5 * held) << body;
      }
    }
  }
  Json chat = {{"messages", Json::array({Json{{"role", "user"}, {"content", "hi"}}})},
               {"max_tokens", 30},
               {"ignore_eos", true},
               {"logprobs", true},
               {"top_logprobs", 5}};
  CompletionRequest request = ParseCompletion(chat, /*chat=*/true, {});
  request.prompts.emplace_back().max_tokens = 30;
  const HttpClient::Answer answer = server_->Post("/v1/chat/completions", chat);
  const auto size = static_cast<int64_t>(answer.body.size());
  EXPECT_GT(AnswerBytes(request) + 500, size);
  EXPECT_LT(AnswerBytes(request), 3 * size);
}

TEST_F(CompletionsTest, EndOfTextIsAnEntryToo) {
  // A prompt after which the greedy token is the end of text, found by trying.
  const LanguageModel model = ByteModel();
  for (int first = 0; first < 257; ++first) {
    const std::vector<int32_t> prompt = {first};
    GenerateOptions greedy;
    greedy.max_tokens = 20;
    greedy.sampling.temperature = 0;
    greedy.logprobs = 0;
    const Generation found = Generator(model).GenerateSamples(prompt, greedy, {})[0];
    if (found.finish != FinishReason::kEndOfText) continue;
    std::vector<int32_t> before = prompt;
    before.insert(before.end(), found.tokens.begin(), found.tokens.end() - 1);
    const Json choice = server_->Complete({{"prompt", before},
                                           {"temperature", 0},
                                           {"max_tokens", 1},
                                           {"logprobs", 1},
                                           {"echo", true}})["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), before.size() + 1);
    EXPECT_EQ(choice["logprobs"]["tokens"].back(), "<|endoftext|>");
    EXPECT_EQ(choice["text"].get<std::string>().find("endoftext"), std::string::npos);
    return;
  }
  GTEST_SKIP() << "no prompt of this model leads to the end of text";
}

TEST_F(CompletionsTest, StopStringsAcrossTokens) {
  const Json body = {{"prompt", "The"}, {"max_tokens", 40}, {"seed", 9}, {"temperature", 0.5}};
  const std::string whole = server_->Complete(body)["choices"][0]["text"].get<std::string>();
  // Any two characters in a row, which are two tokens here.
  for (size_t at = 1; at + 2 < whole.size(); at += 5) {
    if (static_cast<unsigned char>(whole[at]) >= 0x80 ||
        static_cast<unsigned char>(whole[at + 1]) >= 0x80) {
      continue;
    }
    const std::string stop = whole.substr(at, 2);
    Json stopped = body;
    stopped["stop"] = Json::array({"never to be seen", stop});
    stopped["logprobs"] = 0;
    const Json choice = server_->Complete(stopped)["choices"][0];
    const std::string text = choice["text"].get<std::string>();
    EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(choice["finish_reason"], "stop");
    const std::vector<Json> chunks = Stream(*server_, stopped);
    EXPECT_EQ(StreamedText(chunks, 0), text);
  }
}

TEST_F(CompletionsTest, Chat) {
  const Json body = {{"messages", Json::array({Json{{"role", "user"}, {"content", "hi"}}})},
                     {"max_completion_tokens", 9},
                     {"temperature", 0.5},
                     {"seed", 3},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const Json answer = server_->Complete(body, "/v1/chat/completions");
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 8);  // end of text, "U:hi;A:"
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 9u);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["bytes"].size(), 1u);
  // The same as the prompt in tokens.
  const Json text = server_->Complete({{"prompt", {256, 'U', ':', 'h', 'i', ';', 'A', ':'}},
                                       {"max_tokens", 9},
                                       {"temperature", 0.5},
                                       {"seed", 3}});
  EXPECT_EQ(message["content"], text["choices"][0]["text"]);
  const std::vector<Json> chunks = Stream(*server_, body, "/v1/chat/completions");
  EXPECT_EQ(chunks[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(StreamedText(chunks, 0), message["content"].get<std::string>());

  ExpectRefused(R"({"messages": [{"role": "tool", "content": "x"}]})", 400, "messages",
                "expected one of assistant, user", "/v1/chat/completions");
  ExpectRefused(R"({"messages": []})", 400, "messages", "0 entries", "/v1/chat/completions");
  ExpectRefused(R"({"messages": [{"role": "user"}]})", 400, "messages", "content",
                "/v1/chat/completions");
  ExpectRefused(R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3})", 400,
                "top_logprobs", "needs logprobs", "/v1/chat/completions");
}

TEST_F(CompletionsTest, WrongParametersAreNamed) {
  ExpectRefused("", 400, nullptr, "not JSON");
  ExpectRefused("{\"prompt\": \"a\"", 400, nullptr, "not JSON");
  ExpectRefused("[1]", 400, nullptr, "expected an object");
  ExpectRefused(std::string(5000, '['), 400, nullptr, "deeper");
  ExpectRefused("{}", 400, "prompt", "missing");
  ExpectRefused(R"({"prompt": {"a": 1}})", 400, "prompt", "a list of token ids");
  ExpectRefused(R"({"prompt": [1, "a"]})", 400, "prompt", "a list of token ids");
  ExpectRefused(R"({"prompt": [257]})", 400, "prompt", "token 257 at position 0");
  ExpectRefused(R"({"prompt": [-1]})", 400, "prompt", "expected");
  ExpectRefused(R"({"prompt": "a", "temperature": "hot"})", 400, "temperature", "a number from 0");
  ExpectRefused(R"({"prompt": "a", "temperature": -1})", 400, "temperature", "got -1");
  ExpectRefused(R"({"prompt": "a", "top_p": 0})", 400, "top_p", "got 0");
  ExpectRefused(R"({"prompt": "a", "max_tokens": 1.5})", 400, "max_tokens", "a whole number");
  ExpectRefused(R"({"prompt": "a", "max_tokens": 1e300})", 400, "max_tokens", "from 0");
  ExpectRefused(R"({"prompt": "a", "n": 0})", 400, "n", "from 1");
  ExpectRefused(R"({"prompt": "a", "n": 500})", 400, "n", "500 texts");
  ExpectRefused(ToText({{"prompt", std::vector<std::string>(129, "a")}}), 400, "prompt",
                "129 texts");
  ExpectRefused(R"({"messages": [{"role": "user", "content": "x"}], "n": 500})", 400, "n",
                "500 texts", "/v1/chat/completions");
  for (const char* seed : {"1e19", "18446744073709551616", "-9223372036854775809", "9.3e18"}) {
    ExpectRefused(fmt::format(R"({{"prompt": "a", "seed": {}}})", seed), 400, "seed",
                  "a whole number");
  }
  ExpectRefused(R"({"prompt": "a", "stop": [""]})", 400, "stop", "empty");
  ExpectRefused(ToText({{"prompt", "a"}, {"stop", std::string(5000, 'x')}}), 400, "stop",
                "at most 4096");
  ExpectRefused(R"({"prompt": "a", "stop": 3})", 400, "stop", "a list of strings");
  ExpectRefused(R"({"prompt": "a", "logprobs": 100})", 400, "logprobs", "at most 20");
  ExpectRefused(R"({"prompt": "a", "logprobs": true})", 400, "logprobs", "a whole number");
  ExpectRefused(R"({"prompt": "a", "stream": 1})", 400, "stream", "true or false");
  ExpectRefused(R"({"prompt": "a", "stream_options": {"include_usage": true}})", 400,
                "stream_options", "only with stream");
  ExpectRefused(R"({"prompt": "a", "stream_options": {"x": 1}})", 400, "x", "unknown");
  ExpectRefused(R"({"prompt": "a", "max_token": 5})", 400, "max_token",
                "did you mean 'max_tokens'");
  ExpectRefused(R"({"prompt": "a", "best_of": 2})", 400, "best_of", "the same as n");
  ExpectRefused(R"({"prompt": "a", "suffix": "x"})", 400, "suffix", "not supported");
  ExpectRefused(R"({"prompt": "a", "presence_penalty": 1})", 400, "presence_penalty",
                "not supported");
  ExpectRefused(R"({"prompt": "a", "logit_bias": {"5": 1}})", 400, "logit_bias", "not supported");
  ExpectRefused(R"({"prompt": "a", "context": "bend"})", 400, "context", "slide");
  ExpectRefused(R"({"prompt": "a", "model": "gpt-4"})", 404, "model", "only 'bytes'");
  ExpectRefused(ToText({{"prompt", std::string(60, 'a')}}), 400, "prompt", "60 tokens");
  // What is meant for others is ignored, and null is as good as nothing.
  server_->Complete({{"prompt", "a"},
                     {"max_tokens", 1},
                     {"user", "me"},
                     {"metadata", {1, 2}},
                     {"stop", nullptr},
                     {"logprobs", nullptr},
                     {"n", 1.0},
                     {"best_of", 1},
                     {"logit_bias", Json::object()},
                     {"presence_penalty", 0}});
}

TEST_F(CompletionsTest, ContextEndsOrSlides) {
  const Json body = {{"prompt", "abc"}, {"max_tokens", 100}, {"ignore_eos", true}, {"seed", 1}};
  const Json stop = server_->Complete(body);
  EXPECT_EQ(stop["usage"]["completion_tokens"], 48 - 3 + 1);
  EXPECT_EQ(stop["choices"][0]["finish_reason"], "length");
  Json sliding = body;
  sliding["context"] = "slide";
  EXPECT_EQ(server_->Complete(sliding)["usage"]["completion_tokens"], 100);
  // A prompt that fills the context still gets one token.
  EXPECT_EQ(server_->Complete({{"prompt", std::string(48, 'a')},
                               {"max_tokens", 1}})["usage"]["completion_tokens"],
            1);
}

TEST_F(CompletionsTest, OtherEndpoints) {
  HttpClient client = server_->Client();  // all on one connection
  const auto get = [&](const char* path) {
    const HttpClient::Answer answer = client.Call("GET", path);
    EXPECT_EQ(answer.status, 200) << path << answer.body;
    return answer.body;
  };
  const Json models = Json::parse(get("/v1/models"));
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "bytes");
  EXPECT_EQ(models["data"][0]["max_logprobs"], 20);
  EXPECT_EQ(Json::parse(get("/v1/models/bytes"))["object"], "model");
  EXPECT_EQ(Json::parse(get("/health"))["status"], "ok");
  EXPECT_EQ(Json::parse(get("/health?probe=1"))["status"], "ok");
  const Json info = Json::parse(get("/tokenizer_info"));
  EXPECT_EQ(info["eos_token"], "<|endoftext|>");
  const Json tokens = Json::parse(
      client.Call("POST", "/tokenize", R"({"prompt": "hé", "add_special_tokens": false})").body);
  EXPECT_EQ(tokens["tokens"], Json::array({'h', 0xC3, 0xA9}));
  EXPECT_EQ(tokens["count"], 3);
  // The harness finds the end of text by its name.
  EXPECT_EQ(Json::parse(
                client.Call("POST", "/tokenize", R"({"prompt": "<|endoftext|>"})").body)["tokens"],
            Json::array({256}));
  EXPECT_EQ(Json::parse(client.Call("POST", "/detokenize", R"({"tokens": [104, 195, 169]})").body),
            (Json{{"prompt", "hé"}}));
  EXPECT_EQ(client.Call("POST", "/detokenize", R"({"tokens": [104.0]})").status, 200);
  ExpectRefused(R"({"tokens": [104.5]})", 400, "tokens", "token ids", "/detokenize");
  ExpectRefused(R"({"tokens": [999]})", 400, "tokens", "999", "/detokenize");
  ExpectRefused(R"({"tokens": "x"})", 400, "tokens", "token ids", "/detokenize");
  ExpectRefused(R"({})", 400, "prompt", "missing", "/tokenize");
  const Json document = Json::parse(get("/openapi.json"));
  const Json& properties = document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]
                                   ["application/json"]["schema"]["properties"];
  EXPECT_EQ(properties["temperature"]["maximum"], 100);
  EXPECT_EQ(document["paths"].size(), Routes().size());
  EXPECT_EQ(document["paths"]["/v1/models/{id}"]["get"]["parameters"][0]["name"], "id");

  const HttpClient::Answer model = client.Call("GET", "/v1/models/other");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(Json::parse(model.body)["error"]["param"], "model");
  EXPECT_EQ(client.Call("GET", "/v1/models/").status, 404);
  EXPECT_EQ(client.Call("GET", "/nowhere").status, 404);
  const HttpClient::Answer wrong = client.Call("GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.Header("allow"), "POST");
  EXPECT_EQ(client.Call("OPTIONS", "/v1/completions").status, 405);
  EXPECT_EQ(client.Call("GET", "/health").Header("access-control-allow-origin"), "");
}

TEST_F(CompletionsTest, MetricsCount) {
  const double before = server_->Metric("denseformer_generated_tokens_total");
  const double answers = server_->Metric("denseformer_responses_total{code=\"200\"}");
  server_->Complete({{"prompt", "abc"}, {"max_tokens", 7}, {"ignore_eos", true}});
  EXPECT_EQ(server_->Metric("denseformer_generated_tokens_total"), before + 7);
  EXPECT_GE(server_->Metric("denseformer_responses_total{code=\"200\"}"), answers + 2);
  EXPECT_GE(server_->Metric("denseformer_time_to_first_token_seconds_count"), 1);
  EXPECT_GE(server_->Metric("denseformer_inter_token_seconds_bucket{le=\"+Inf\"}"), 6);
  EXPECT_GT(server_->Metric("process_resident_memory_bytes"), 1e6);
  EXPECT_EQ(server_->Metric("denseformer_connections"), 1);
}

}  // namespace
}  // namespace denseformer

// Parts of the server by themselves: templates of chats, keys, metrics and the documents.
#include <gtest/gtest.h>

#include "base/error_testing.h"
#include "base/file.h"
#include "base/source_directory.h"
#include "denseformer/tokenizer.h"
#include "serve/access.h"
#include "serve/chat_template.h"
#include "serve/completion_request.h"
#include "serve/json.h"
#include "serve/metrics.h"
#include "serve/openapi.h"
#include "serve/request_error.h"
#include "serve/service.h"
#include "serve/utf8.h"

namespace denseformer {
namespace {

TEST(ChatTemplateTest, SpecialTokensOfTheTemplateOnly) {
  const Tokenizer tokenizer = Tokenizer::Bytes();
  const ChatTemplate chat = ChatTemplate::Parse(
      "user = \"<|endoftext|>u {content}\\n\"\ngeneration = \"a\"\nstop = [\"x\"]\n", "t.toml");
  EXPECT_EQ(chat.stop(), std::vector<std::string>{"x"});
  std::vector<int32_t> expected = {256, 'u', ' '};
  for (const char c : std::string("<|endoftext|>")) expected.push_back(c);
  expected.insert(expected.end(), {'\n', 256, 'u', ' ', 'b', '\n', 'a'});
  EXPECT_EQ(chat.Encode(tokenizer, {{"user", "<|endoftext|>"}, {"user", "b"}}), expected);
  EXPECT_THROW(chat.Encode(tokenizer, {{"system", "b"}}), RequestError);
}

TEST(ChatTemplateTest, Mistakes) {
  const auto parse = [](const char* text) {
    return [text] { ChatTemplate::Parse(text, "t.toml"); };
  };
  ExpectError(ErrorCode::kInvalid, "t.toml:2: ", parse("user = '{content}'\nx = ="));
  ExpectError(ErrorCode::kInvalid, "user: expected a text with {content}", parse("user = 'u'"));
  ExpectError(ErrorCode::kInvalid, "user: expected a string", parse("user = 3"));
  ExpectError(ErrorCode::kInvalid, "no roles", parse("begin = 'x'"));
  ExpectError(ErrorCode::kInvalid, "stop: expected a list",
              parse("user = '{content}'\nstop = 'x'"));
  ExpectError(ErrorCode::kInvalid, "stop: expected a list",
              parse("user = '{content}'\nstop = ['x', '']"));
}

TEST(CompletionRequestTest, WaitsWithItsTokensAlone) {
  const Tokenizer tokenizer = Tokenizer::Bytes();
  for (const bool echo : {false, true}) {
    CompletionRequest request =
        ParseCompletion({{"prompt", {"abc", "de"}}, {"echo", echo}}, /*chat=*/false, {});
    EncodePrompts(tokenizer, nullptr, /*context=*/100, {}, request);
    EXPECT_TRUE(request.prompt.is_null());
    ASSERT_EQ(request.prompts.size(), 2u);
    EXPECT_EQ(request.prompts[0].tokens, (std::vector<int32_t>{'a', 'b', 'c'}));
    EXPECT_EQ(request.prompts[0].text, echo ? "abc" : "");
  }
}

TEST(JsonTest, BodiesOfTooManyPartsAreNotParsed) {
  const auto refuse = [](const std::string& body, const char* part) {
    ExpectError(ErrorCode::kInvalid, part, [&] { ParseBody(body); });
  };
  const auto object = [](int members) {
    Json json = Json::object();
    auto& map = json.get_ref<Json::object_t&>();
    for (int n = 0; n < members; ++n) map.emplace_back(std::to_string(n), n);
    return ToText(json);
  };
  EXPECT_EQ(ParseBody(object(256)).size(), 256u);
  refuse(object(257), "body: an object with more than 256 members");
  refuse(object(100000), "body: an object with more than 256 members");
  const auto list = [](const std::string& entry, int count) {
    std::string body = "{\"prompt\":[" + entry;
    for (int n = 1; n < count; ++n) body += "," + entry;
    return body + "]}";
  };
  EXPECT_EQ(ParseBody(list("1", 200000))["prompt"].size(), 200000u);
  for (const char* entry : {"\"\"", "[]", "{}"}) {
    EXPECT_EQ(ParseBody(list(entry, 65000))["prompt"].size(), 65000u);
    refuse(list(entry, 66000), "body: more than 65536 strings, lists and objects");
  }
  // Objects that are beside each other count by themselves.
  const std::string pair = "{\"role\":\"user\",\"content\":\"x\"}";
  EXPECT_EQ(ParseBody(list(pair, 4096))["prompt"].size(), 4096u);
  refuse("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}", "deeper than 32 levels");
}

TEST(JsonTest, LongNamesAreNotRepeated) {
  const auto unknown = [](size_t length) {
    try {
      ParseCompletion({{"prompt", "a"}, {std::string(length, 'x'), 1}}, /*chat=*/false, {});
    } catch (const RequestError& error) {
      return std::make_pair(error.param(), std::string(error.what()));
    }
    return std::make_pair(std::string(), std::string());
  };
  EXPECT_EQ(unknown(64).first, std::string(64, 'x'));
  EXPECT_EQ(unknown(4000000).first, std::string(64, 'x') + "...");
  EXPECT_EQ(unknown(4000000).second, std::string(64, 'x') + "...: unknown parameter");
}

TEST(CompletionRequestTest, EachPromptHasTheRestOfItsOwnContext) {
  const Tokenizer tokenizer = Tokenizer::Bytes();
  CompletionRequest request = ParseCompletion(
      {{"prompt", {"a", std::string(100, 'b'), std::string(95, 'c')}}, {"max_tokens", 10}},
      /*chat=*/false, {});
  EncodePrompts(tokenizer, nullptr, /*context=*/100, {}, request);
  EXPECT_EQ(request.prompts[0].max_tokens, 10);
  EXPECT_EQ(request.prompts[1].max_tokens, 1);
  EXPECT_EQ(request.prompts[2].max_tokens, 6);
}

TEST(AccessTest, KeyFiles) {
  EXPECT_EQ(ParseApiKeys("# ours\nabc\n\n  def  \r\n", "k"),
            (std::vector<std::string>{"abc", "def"}));
  ExpectError(ErrorCode::kInvalid, "k: no key", [] { ParseApiKeys("# none\n", "k"); });
  ExpectError(ErrorCode::kInvalid, "k: line 2", [] { ParseApiKeys("abc\nd e\n", "k"); });
}

TEST(Utf8Test, EveryWrongByteIsReplaced) {
  EXPECT_EQ(ValidUtf8("aé€😀"), "aé€😀");
  EXPECT_EQ(ValidUtf8("a\xC3"), "a\uFFFD");
  EXPECT_EQ(ValidUtf8("\xE2\x82z"), "\uFFFD\uFFFDz");
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
}

TEST(Utf8Test, CursorCountsTheCharactersOfTheValidText) {
  const std::string text = "aé\xE2\x82z\x80";  // 'a', 'é', two wrong bytes, 'z', a wrong byte
  const int64_t expected[] = {5, 6, 6, 7, 8, 9, 10, 11};
  CharacterCursor cursor(text, 5);
  for (size_t n = 0; n < std::size(expected); ++n) {
    EXPECT_EQ(cursor.MoveTo(n), expected[n]) << n;
  }
}

TEST(MetricsTest, Text) {
  Metrics metrics;
  metrics.Add(Metric::kResponses, 1, "200");
  metrics.Add(Metric::kResponses, 2, "404");
  metrics.Set(Metric::kSteps, 7);
  metrics.Observe(Metric::kQueueSeconds, 0.02);
  metrics.Observe(Metric::kQueueSeconds, 1e9);
  const std::string text = metrics.ToText();
  for (const char* line :
       {"# TYPE denseformer_responses_total counter\n",
        "denseformer_responses_total{code=\"404\"} 2\n", "denseformer_engine_steps_total 7\n",
        "denseformer_queue_seconds_bucket{le=\"0.01\"} 0\n",
        "denseformer_queue_seconds_bucket{le=\"0.025\"} 1\n",
        "denseformer_queue_seconds_bucket{le=\"100\"} 1\n",
        "denseformer_queue_seconds_bucket{le=\"+Inf\"} 2\n", "denseformer_queue_seconds_count 2\n",
        "denseformer_sequences_running 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  for (const MetricInfo& info : MetricTable()) {
    EXPECT_EQ(&info - MetricTable().data(), static_cast<int>(info.metric));
  }
}

// The document says what CheckField and the setters refuse, and what they take.
TEST(OpenApiTest, SchemasAreThoseOfTheParser) {
  ServeOptions options;
  options.request.max_logprobs = 7;
  const auto fields = [&](const char* path) {
    const Json document = OpenApiDocument(options);
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
  };
  const Json text = fields("/v1/completions"), chat = fields("/v1/chat/completions");
  EXPECT_EQ(text["additionalProperties"], false);
  for (const Json& schema : {text, chat}) {
    for (const auto& [name, field] : schema["properties"].items()) EXPECT_TRUE(field.is_object());
  }
  EXPECT_EQ(text["properties"].size(), CompletionFields().size());
  EXPECT_EQ(chat["properties"].size(), ChatFields().size());
  EXPECT_EQ(text["required"], Json::array({"prompt"}));
  const Json& known = text["properties"];
  EXPECT_EQ(known["temperature"]["type"], Json::array({"number", "null"}));
  EXPECT_EQ(known["prompt"]["anyOf"].size(), 4u);  // never null
  EXPECT_EQ(known["stop"]["anyOf"][0]["minLength"], 1);
  EXPECT_EQ(known["stop"]["anyOf"][1]["maxItems"], 16);
  EXPECT_EQ(known["stop"]["anyOf"][2]["type"], "null");
  EXPECT_EQ(known["context"]["enum"], Json::array({"stop", "slide", nullptr}));
  EXPECT_EQ(known["seed"]["maximum"], UINT64_MAX);
  EXPECT_EQ(known["logprobs"]["maximum"], 7);
  EXPECT_EQ(known["n"]["maximum"], 128);
  EXPECT_EQ(known["presence_penalty"]["maximum"], 0);
  EXPECT_EQ(chat["properties"]["messages"]["minItems"], 1);
  EXPECT_EQ(chat["properties"]["top_logprobs"]["maximum"], 7);
  EXPECT_EQ(chat["properties"]["logprobs"]["type"], Json::array({"boolean", "null"}));
  const Json open = OpenApiDocument(options);
  EXPECT_FALSE(open.contains("security"));
  EXPECT_TRUE(open["paths"]["/v1/models/{id}"]["get"]["responses"].contains("404"));
  options.api_keys = {"k"};
  const Json keyed = OpenApiDocument(options);
  EXPECT_TRUE(keyed.contains("security"));
  EXPECT_EQ(keyed["paths"]["/health"]["get"]["security"], Json::array());
  EXPECT_TRUE(keyed["paths"]["/metrics"]["get"]["responses"].contains("401"));
  EXPECT_FALSE(open["paths"]["/metrics"]["get"]["responses"].contains("401"));
}

// docs/serving.md has a row for every route, field and metric, in the words of the program.
TEST(ServingDocumentTest, HasTheTablesOfTheProgram) {
  const std::string document = ReadFile(SourceDirectory() + "/docs/serving.md");
  const auto expect = [&](const std::string& row) {
    EXPECT_NE(document.find("\n" + row + "\n"), std::string::npos)
        << "missing in docs/serving.md:\n"
        << row;
  };
  static constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  for (const MetricInfo& info : MetricTable()) {
    const std::string label = *info.label == '\0' ? "" : fmt::format("{{{}}}", info.label);
    expect(fmt::format("| `{}{}` | {} | {} |", info.name, label,
                       kKinds[static_cast<int>(info.kind)], info.help));
  }
  for (const Route& route : Routes()) {
    expect(fmt::format("| `{} {}` | {} |", route.method, route.path, route.help));
    for (const FieldInfo& field : RouteFields(route.path)) {
      if (field.type == FieldType::kIgnored) continue;
      expect(fmt::format("| `{}` | {} | {} |", field.name,
                         field.fallback == nullptr ? "required" : field.fallback, field.help));
    }
  }
}

}  // namespace
}  // namespace denseformer

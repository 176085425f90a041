#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/error_testing.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/testing.h"
#include "denseformer/engine.h"
#include "infer/testing.h"

namespace denseformer {
namespace {

using testing::ByteModel;

std::vector<int32_t> RandomPrompt(Random& random, int64_t most) {
  std::vector<int32_t> prompt(1 + random.Below(static_cast<uint64_t>(most)));
  for (int32_t& token : prompt) token = static_cast<int32_t>(random.Below(257));
  return prompt;
}

SequenceRequest Request(std::vector<int32_t> prompt, int max_tokens) {
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.stop_at_end_of_text = false;
  return request;
}

// All that an engine said about one sequence.
struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs;
  std::vector<int32_t> prompt_ids;
  std::optional<FinishReason> finish;
};

using Outcomes = std::map<SequenceId, Outcome>;

void Record(const std::vector<EngineEvent>& events, Outcomes& outcomes) {
  for (const EngineEvent& event : events) {
    Outcome& outcome = outcomes[event.id];
    EXPECT_FALSE(outcome.finish) << "an event after the end";
    for (const GeneratedToken& token : event.prompt_logprobs) {
      outcome.prompt_ids.push_back(token.chosen.id);
      outcome.prompt_logprobs.push_back(token.chosen.logprob);
    }
    if (event.token) {
      outcome.tokens.push_back(event.token->chosen.id);
      outcome.logprobs.push_back(event.token->chosen.logprob);
    }
    outcome.finish = event.finish;
  }
}

void RunToEnd(DecodeEngine& engine, Outcomes& outcomes) {
  for (int steps = 0; !engine.idle(); ++steps) {
    ASSERT_LT(steps, 10000);
    Record(engine.Step(), outcomes);
  }
}

Outcome Alone(const LanguageModel& model, const SequenceRequest& request) {
  DecodeEngine engine = DecodeEngine::Create(model);
  const SequenceId id = engine.Add(request);
  Outcomes outcomes;
  RunToEnd(engine, outcomes);
  return outcomes[id];
}

struct EngineCase {
  const char* name;
  WeightFormat format;
  const char* mixer = "static";
  const char* streams = "r";
  const char* norm = "none";
};

LanguageModel CaseModel(const EngineCase& c) {
  return ByteModel("2x1", 48, c.format, c.mixer, c.streams, c.norm);
}

void PrintTo(const EngineCase& engine_case, std::ostream* out) { *out << engine_case.name; }

class EngineTest : public ::testing::TestWithParam<EngineCase> {};

// Random arrivals, prompts whole or in chunks, with and without common prefixes: every bit is that
// of the sequence alone.
TEST_P(EngineTest, BitsDoNotDependOnWhatIsBatchedBeside) {
  const LanguageModel model = CaseModel(GetParam());
  Random random(17);
  DecodeEngine engine =
      DecodeEngine::Create(model, {.max_rows = 24, .max_sequences = 12, .kept_prefixes = 5});
  std::map<SequenceId, SequenceRequest> requests;
  Outcomes outcomes;
  std::vector<int32_t> last = {1};
  for (int arrival = 0; arrival < 40; ++arrival) {
    SequenceRequest request =
        Request(RandomPrompt(random, 40), 1 + static_cast<int>(random.Below(8)));
    if (random.Below(3) == 0) {  // a prefix in common with the one before
      last.insert(last.end(), request.prompt.begin(), request.prompt.end());
      last.resize(std::min<size_t>(last.size(), 41));
      request.prompt = last;
    }
    last = request.prompt;
    request.logprobs = 2;
    if (random.Below(3) == 0) request.prompt_logprobs = 1;
    request.sampling.seed = random.Below(100);
    request.sampling.temperature = 0.5 * static_cast<double>(random.Below(3));
    requests[engine.Add(request)] = request;
    for (uint64_t steps = random.Below(4); steps > 0; --steps) Record(engine.Step(), outcomes);
  }
  RunToEnd(engine, outcomes);
  EXPECT_GT(engine.stats().reused_tokens, 0u);
  for (const auto& [id, request] : requests) {
    SCOPED_TRACE(id);
    const Outcome alone = Alone(model, request), &together = outcomes[id];
    EXPECT_EQ(together.tokens, alone.tokens);
    EXPECT_EQ(together.finish, alone.finish);
    EXPECT_EQ(together.logprobs, alone.logprobs);
    EXPECT_EQ(together.prompt_logprobs, alone.prompt_logprobs);
    ASSERT_EQ(together.prompt_logprobs.size(),
              request.prompt_logprobs < 0 ? 0 : request.prompt.size() - 1);
  }
}

// The full pass sums attention in another order; rounding to bf16 and int8 enlarges the difference.
double Tolerance(WeightFormat format) {
  return format == WeightFormat::kF32 ? 1e-4 : format == WeightFormat::kBF16 ? 0.2 : 0.5;
}

TEST_P(EngineTest, PromptLogprobsAreThoseOfTheFullPass) {
  const LanguageModel model = CaseModel(GetParam());
  Random random(3);
  SequenceRequest request = Request({}, 1);
  for (int n = 0; n < 30; ++n) request.prompt.push_back(static_cast<int32_t>(random.Below(257)));
  request.prompt_logprobs = 3;
  request.prompt_logprobs_begin = 4;
  // Rows in several steps and several chunks of the head.
  DecodeEngine engine = DecodeEngine::Create(model, {.max_rows = 7, .max_sequences = 2});
  const SequenceId id = engine.Add(request);
  Outcomes outcomes;
  RunToEnd(engine, outcomes);
  const std::vector<float> logits = model.Logits(request.prompt);
  ASSERT_EQ(outcomes[id].prompt_ids.size(), 26u);
  for (size_t n = 0; n < 26; ++n) {
    const size_t position = n + 4;
    EXPECT_EQ(outcomes[id].prompt_ids[n], request.prompt[position]);
    const float* row = logits.data() + (position - 1) * 320;
    double sum = 0;
    for (int v = 0; v < 320; ++v) sum += std::exp(static_cast<double>(row[v]));
    EXPECT_NEAR(outcomes[id].prompt_logprobs[n], row[request.prompt[position]] - std::log(sum),
                Tolerance(GetParam().format));
  }
  EXPECT_EQ(outcomes[id].tokens.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineTest,
    ::testing::Values(EngineCase{"fp32", WeightFormat::kF32},
                      EngineCase{"bf16", WeightFormat::kBF16},
                      EngineCase{"int8", WeightFormat::kInt8},
                      EngineCase{"static_rqkv", WeightFormat::kF32, "static", "rqkv"},
                      EngineCase{"dynamic", WeightFormat::kInt8, "dynamic", "rqkv"},
                      EngineCase{"dynamic_rv", WeightFormat::kF32, "dynamic", "rv"},
                      EngineCase{"prepost", WeightFormat::kBF16, "dynamic", "rv", "prepost"},
                      EngineCase{"attention", WeightFormat::kBF16, "attention"},
                      EngineCase{"attention_rv", WeightFormat::kF32, "attention", "rv"},
                      EngineCase{"attnres", WeightFormat::kBF16, "attnres"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Engine, APromptWithoutNewTokens) {
  const LanguageModel model = ByteModel();
  SequenceRequest request = Request({1, 2, 3, 4, 5}, 0);
  request.prompt_logprobs = 0;
  const Outcome outcome = Alone(model, request);
  EXPECT_EQ(outcome.prompt_ids, (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_TRUE(outcome.tokens.empty());
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
}

TEST(Engine, RowsGoToRunningSequencesFirst) {
  const LanguageModel model = ByteModel();
  DecodeEngine engine = DecodeEngine::Create(model, {.max_rows = 4, .max_sequences = 4});
  const SequenceId first = engine.Add(Request({1}, 20));
  engine.Step();
  const SequenceId second = engine.Add(Request(std::vector<int32_t>(10, 7), 20));
  // 10 tokens of prompt at 3 rows per step beside the first sequence's one.
  for (int step = 0; step < 3; ++step) {
    const std::vector<EngineEvent> events = engine.Step();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].id, first);
  }
  const std::vector<EngineEvent> events = engine.Step();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].id, second);
}

TEST(Engine, ACommonPrefixIsComputedOnce) {
  const LanguageModel model = ByteModel("1x1", 96);
  DecodeEngine engine = DecodeEngine::Create(model);
  std::vector<int32_t> prompt(70);
  for (int n = 0; n < 70; ++n) prompt[n] = n;
  Outcomes outcomes;
  for (int n = 0; n < 8; ++n) engine.Add(Request(prompt, 3));
  RunToEnd(engine, outcomes);
  EXPECT_EQ(engine.stats().reused_tokens, 7u * 69);
  prompt[50] = 0;
  engine.Add(Request(prompt, 3));  // of a finished one
  RunToEnd(engine, outcomes);
  EXPECT_EQ(engine.stats().reused_tokens, 7u * 69 + 50);
  EXPECT_EQ(outcomes[1].tokens, outcomes[8].tokens);
}

TEST(Engine, CancelledSequencesLeaveAtOnce) {
  const LanguageModel model = ByteModel();
  DecodeEngine engine = DecodeEngine::Create(model, {.max_sequences = 1});
  const SequenceId running = engine.Add(Request({1, 2}, 20)), queued = engine.Add(Request({3}, 5));
  const SequenceId last = engine.Add(Request({4}, 5));
  engine.Step();
  EXPECT_TRUE(engine.Cancel(running));
  EXPECT_TRUE(engine.Cancel(queued));
  EXPECT_FALSE(engine.Cancel(running));
  Outcomes outcomes;
  RunToEnd(engine, outcomes);
  EXPECT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[last].tokens, Alone(model, Request({4}, 5)).tokens);
}

TEST(Engine, MemoryIsBoundedAndRefusedBeforeItIsTaken) {
  const LanguageModel model = ByteModel("1x1", 96);
  EngineOptions options{.max_rows = 8, .max_sequences = 8};
  const auto limit = [&](int64_t bytes) {
    options.memory_bytes = bytes;
    return DecodeEngine::Create(model, options).stats().cache_limit_bytes;
  };
  ExpectError(ErrorCode::kUsage, "memory_bytes: got 1000, but the buffers of a step of 8 rows take",
              [&] { limit(1000); });
  const int64_t full = limit(0), page = full / (8 * 3);
  int64_t two_pages = 1 << 16;
  while (true) {  // the buffers of a step are not for this test to know
    try {
      if (limit(two_pages) >= 2 * page) break;
    } catch (const Error&) {
    }
    two_pages += page / 2;
  }
  options.memory_bytes = two_pages;
  DecodeEngine engine = DecodeEngine::Create(model, options);
  ASSERT_EQ(engine.stats().cache_limit_bytes, 2 * page);
  const SequenceId first = engine.Add(Request({1, 2, 3}, 20));
  ExpectError(ErrorCode::kInvalid, "sequence of up to 82 tokens: its keys and values take", [&] {
    engine.Add(Request({1, 2, 3}, 80));
  });
  // Each of these needs both pages: they run one after the other.
  std::vector<SequenceId> ids = {first};
  for (int n = 0; n < 3; ++n) ids.push_back(engine.Add(Request({9, n}, 40)));
  Outcomes outcomes;
  while (!engine.idle()) {
    Record(engine.Step(), outcomes);
    ASSERT_LE(engine.stats().cache_bytes, 2 * page);
  }
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(outcomes[ids[n + 1]].tokens, Alone(model, Request({9, n}, 40)).tokens);
  }
}

TEST(Engine, MemoryLimitIsWhatTheProcessTakes) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory cannot be told from the engine's";
  ModelConfig config = ModelConfig::Preset("test");
  config.n_layer = 150;  // a page takes 2.34 MiB
  config.n_embd = 64;
  config.vocab_size = 320;
  Model weights(config, DType::kF32, ModelUse::kInference);
  weights.Initialize(3);
  const LanguageModel model =
      MakeLanguageModel(weights.Frozen(WeightFormat::kF32), Tokenizer::Bytes());
  EngineOptions options{.max_sequences = 256, .memory_bytes = 300 << 20, .kept_prefixes = 1000};
  const int64_t before = ResidentMemory();
  DecodeEngine engine = DecodeEngine::Create(model, options);
  Random random(/*key=*/1);
  for (int n = 0; n < 150; ++n) {  // of one page each, which stays when they end
    std::vector<int32_t> prompt(30);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random.Below(257));
    engine.Add(Request(prompt, 1));
  }
  Outcomes outcomes;
  RunToEnd(engine, outcomes);
  EXPECT_EQ(engine.stats().cache_bytes, engine.stats().cache_limit_bytes);
  const double limit = static_cast<double>(options.memory_bytes);
  EXPECT_NEAR(static_cast<double>(ResidentMemory() - before), limit, 0.1 * limit);
}

TEST(Engine, BadInputIsOneErrorAndOthersGoOn) {
  const LanguageModel model = ByteModel();
  DecodeEngine engine = DecodeEngine::Create(model);
  const SequenceId id = engine.Add(Request({1, 2, 3}, 10));
  engine.Step();
  ExpectError(ErrorCode::kInvalid, "prompt: 49 tokens, but the model's context has 48",
              [&] { engine.Add(Request(std::vector<int32_t>(49, 1), 1)); });
  ExpectError(ErrorCode::kInvalid, "prompt: token 320 at position 1, expected 0 to 319", [&] {
    engine.Add(Request({1, 320}, 1));
  });
  ExpectError(ErrorCode::kInvalid, "prompt: token -1 at position 0",
              [&] { engine.Add(Request({-1}, 1)); });
  ExpectError(ErrorCode::kUsage, "max_tokens: got -1", [&] { engine.Add(Request({1}, -1)); });
  SequenceRequest request = Request({1}, 1);
  request.prompt_logprobs_begin = 0;
  ExpectError(ErrorCode::kUsage, "prompt_logprobs_begin: got 0", [&] { engine.Add(request); });
  request = Request(std::vector<int32_t>(60, 1), 1);
  request.context = ContextPolicy::kSlide;
  request.prompt_logprobs = 0;
  ExpectError(ErrorCode::kInvalid, "log-probabilities of a prompt need all of it",
              [&] { engine.Add(request); });
  EXPECT_EQ(engine.stats().running + engine.stats().waiting, 1);
  Outcomes outcomes;
  RunToEnd(engine, outcomes);
  const std::vector<int32_t> expected = Alone(model, Request({1, 2, 3}, 10)).tokens;
  EXPECT_TRUE(std::equal(expected.begin() + 1, expected.end(), outcomes[id].tokens.begin()));
}

TEST(Engine, WrongOptionsAreNamed) {
  const LanguageModel model = ByteModel();
  const auto create = [&](EngineOptions options) { DecodeEngine::Create(model, options); };
  ExpectError(ErrorCode::kUsage, "max_rows: got 0, expected 1 to",
              [&] { create({.max_rows = 0}); });
  ExpectError(ErrorCode::kUsage, "max_sequences: got 9, expected 1 to 8",
              [&] { create({.max_rows = 8, .max_sequences = 9}); });
  ExpectError(ErrorCode::kUsage, "memory_bytes: got -1", [&] { create({.memory_bytes = -1}); });
}

DecodeEngine EngineWithDamagedWeights() {
  ModelConfig config = ModelConfig::Preset("test");
  config.vocab_size = 320;
  Model weights(config, DType::kF32, ModelUse::kInference);
  weights.Initialize(1);
  weights.tensors().ln_f_weight.f32()[0] = NAN;
  return DecodeEngine::Create(
      MakeLanguageModel(weights.Frozen(WeightFormat::kF32), Tokenizer::Bytes()));
}

TEST(Engine, DamagedWeightsFailTheSequence) {
  DecodeEngine engine = EngineWithDamagedWeights();
  engine.Add(Request({1}, 3));
  const std::vector<EngineEvent> events = engine.Step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kFailed);
  EXPECT_NE(events[0].error.find("is not finite"), std::string::npos);
  EXPECT_TRUE(engine.idle());
}

// A log-probability that is no number would pass for a score of the prompt.
TEST(Engine, DamagedWeightsFailTheScoresOfAPrompt) {
  DecodeEngine engine = EngineWithDamagedWeights();
  SequenceRequest request = Request({1, 2, 3}, 0);
  request.prompt_logprobs = 0;
  engine.Add(request);
  const std::vector<EngineEvent> events = engine.Step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kFailed);
  EXPECT_TRUE(events[0].prompt_logprobs.empty());
  EXPECT_NE(events[0].error.find("is not finite"), std::string::npos);
}

}  // namespace
}  // namespace denseformer

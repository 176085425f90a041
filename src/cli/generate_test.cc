// denseformer generate, called as users call it, on a small model of bytes.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

constexpr int kContext = 32;  // of the preset `test`

class GenerateCommandTest : public testing::Test {
 protected:
  // One run for all tests: nothing here changes it.
  static void SetUpTestSuite() {
    scratch_ = new TemporaryDirectory;
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the quick brown fox jumps over the lazy dog\n";
    WriteFileAtomic(*scratch_ / "a.txt", text);
    const std::string data = *scratch_ / "data";
    ASSERT_EQ(RunProgram({"data", "prepare", "--tokenizer", "bytes", "--output", data,
                          *scratch_ / "a.txt", "--quiet"})
                  .status,
              0);
    ASSERT_EQ(RunProgram({"train", RunPath(), "--preset", "test", "--data", data, "--steps", "30",
                          "--quiet", "--threads", "1"})
                  .status,
              0);
  }
  static void TearDownTestSuite() {
    delete scratch_;
    scratch_ = nullptr;
  }

  static std::string RunPath() { return *scratch_ / "run"; }

  static ProgramResult Generate(std::vector<std::string> more, const std::string& input = "") {
    more.insert(more.begin(), {"generate", RunPath(), "--threads", "1", "--precision", "fp32"});
    // Without a seed each call gives another text.
    if (std::find(more.begin(), more.end(), "--seed") == more.end()) {
      more.insert(more.end(), {"--seed", "0"});
    }
    return RunProgram(more, input);
  }
  // The text alone.
  static std::string Text(const std::vector<std::string>& more, const std::string& input = "") {
    const ProgramResult result = Generate(more, input);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  static Json GenerateJson(std::vector<std::string> more) {
    more.insert(more.end(), {"--json", "--quiet"});
    const ProgramResult result = Generate(more);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out);
  }

  static TemporaryDirectory* scratch_;
};
TemporaryDirectory* GenerateCommandTest::scratch_ = nullptr;

TEST_F(GenerateCommandTest, PromptByFlagFileAndStandardInput) {
  const std::string expected = Text({"--prompt", "the quick", "-n", "10"});
  EXPECT_EQ(expected.back(), '\n');
  EXPECT_GT(expected.size(), 1u);
  EXPECT_EQ(Text({"-p", "the quick", "-n", "10"}), expected);
  // The line end of a file is no part of the prompt.
  for (const char* ending : {"", "\n", "\r\n"}) {
    const std::string prompt = std::string("the quick") + ending;
    WriteFileAtomic(*scratch_ / "prompt", prompt);
    EXPECT_EQ(Text({"--prompt-file", *scratch_ / "prompt", "-n", "10"}), expected);
    EXPECT_EQ(Text({"--prompt-file", "-", "-n", "10"}, prompt), expected);
    EXPECT_EQ(Text({"-n", "10"}, prompt), expected);
  }
  EXPECT_EQ(Text({"-p", "the quick", "-n", "10", "--echo"}), "the quick" + expected);
  // One line end only.
  EXPECT_EQ(GenerateJson({"-p", "a\n", "-n", "1"})["prompt"], "a\n");
}

TEST_F(GenerateCommandTest, JsonSaysEverything) {
  const Json json = GenerateJson({"-p", "fox", "-n", "5", "--samples", "2", "--ignore-end"});
  EXPECT_EQ(json["prompt"], "fox");
  EXPECT_EQ(json["prompt_tokens"], 3);
  EXPECT_GT(json["tokens_per_second"].get<double>(), 0);
  ASSERT_EQ(json["samples"].size(), 2u);
  for (const Json& sample : json["samples"]) {
    EXPECT_EQ(sample["tokens"].size(), 5u);
    EXPECT_TRUE(sample["text"].is_string());
    EXPECT_EQ(sample["finish_reason"], "length");
    EXPECT_FALSE(sample.contains("logprobs"));
  }
  const Json none = GenerateJson({"-p", "fox", "-n", "0"});
  EXPECT_EQ(none["samples"][0]["text"], "");
  EXPECT_EQ(none["samples"][0]["tokens"].size(), 0u);
}

TEST_F(GenerateCommandTest, TheSeedDecides) {
  const std::vector<std::string> call = {"-p", "the", "-n", "20", "--seed", "7"};
  const std::string first = Text(call);
  EXPECT_EQ(Text(call), first);
  std::vector<std::string> other = call;
  other.back() = "8";
  EXPECT_NE(Text(other), first);
  // Greedy text does not depend on it.
  EXPECT_EQ(Text({"-p", "the", "-n", "20", "--temperature", "0", "--seed", "1"}),
            Text({"-p", "the", "-n", "20", "--top-k", "1", "--seed", "2"}));
}

TEST_F(GenerateCommandTest, TheSeedIsAnotherOneEachTimeAndPrinted) {
  const std::vector<std::string> call = {"generate", RunPath(), "-p", "the", "-n", "20", "--json"};
  const Json first = Json::parse(RunProgram(call).out), second = Json::parse(RunProgram(call).out);
  EXPECT_NE(first["seed"], second["seed"]);
  std::vector<std::string> again = call;
  again.insert(again.end(), {"--seed", first["seed"].dump()});
  EXPECT_EQ(Json::parse(RunProgram(again).out)["samples"], first["samples"]);
  EXPECT_NE(Generate({"-p", "the", "--seed", "12"}).err.find(", seed 12\n"), std::string::npos);
}

TEST_F(GenerateCommandTest, SeveralSamplesBeginWithTheSingleOne) {
  const std::string one = Text({"-p", "the", "-n", "12"});
  const std::string three = Text({"-p", "the", "-n", "12", "--samples", "3"});
  EXPECT_EQ(three.rfind("--- sample 1 ---\n" + one, 0), 0u) << three;
  EXPECT_NE(three.find("--- sample 3 ---\n"), std::string::npos);
}

TEST_F(GenerateCommandTest, StopStringsEndTheText) {
  const std::string whole =
      GenerateJson({"-p", "the", "-n", "25", "--temperature", "0"})["samples"][0]["text"];
  ASSERT_GT(whole.size(), 6u);
  const std::string stop = whole.substr(3, 2);
  const Json json = GenerateJson({"-p", "the", "-n", "25", "--temperature", "0", "--stop",
                                  "\x01 never", "--stop", stop})["samples"][0];
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["text"], whole.substr(0, whole.find(stop)));
}

TEST_F(GenerateCommandTest, Logprobs) {
  const Json json =
      GenerateJson({"-p", "the", "-n", "4", "--temperature", "0", "--logprobs", "3"})["samples"][0];
  ASSERT_EQ(json["logprobs"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Json& token = json["logprobs"][i];
    EXPECT_EQ(token["id"], json["tokens"][i]);
    ASSERT_EQ(token["likeliest"].size(), 3u);
    EXPECT_LE(token["logprob"].get<double>(), 0);
    // Greedy: the likeliest one was chosen, and its value is the same bits.
    EXPECT_EQ(token["likeliest"][0]["id"], token["id"]);
    EXPECT_EQ(token["likeliest"][0]["logprob"], token["logprob"]);
    EXPECT_GE(token["likeliest"][1]["logprob"], token["likeliest"][2]["logprob"]);
  }
  // As text: the text, then a line a token.
  const std::string plain = Text({"-p", "the", "-n", "4"});
  const std::string text = Text({"-p", "the", "-n", "4", "--logprobs", "1"});
  ASSERT_EQ(text.rfind(plain, 0), 0u) << text;
  const std::string table = text.substr(plain.size());
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4) << text;
  EXPECT_NE(table.find("   likeliest: \""), std::string::npos) << text;
}

TEST_F(GenerateCommandTest, TheContextEndsTheTextOrSlides) {
  const Json stop = GenerateJson({"-p", "the", "-n", "100", "--ignore-end"})["samples"][0];
  EXPECT_EQ(stop["finish_reason"], "context");
  EXPECT_EQ(stop["tokens"].size(), kContext - 3u + 1);
  const Json slide =
      GenerateJson({"-p", "the", "-n", "100", "--ignore-end", "--context", "slide"})["samples"][0];
  EXPECT_EQ(slide["finish_reason"], "length");
  EXPECT_EQ(slide["tokens"].size(), 100u);

  const std::string longer(kContext + 1, 'x');
  const ProgramResult result = Generate({"-p", longer});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "error: prompt: 33 tokens, but the model's context has 32; shorten it, or slide the "
            "window (--context slide)\n");
  EXPECT_EQ(Generate({"-p", longer, "--context", "slide", "-n", "3"}).status, 0);
}

TEST_F(GenerateCommandTest, TextThatIsNotUtf8) {
  const Json json = GenerateJson({"-p", "a\xff\xfe", "-n", "3"});
  EXPECT_EQ(json["prompt_tokens"], 3);
  EXPECT_EQ(json["prompt"], "a\uFFFD\uFFFD");
}

// What the program prints when `typed` is typed on its terminal.
std::string OnTerminal(const std::vector<std::string>& arguments, const std::string& typed) {
  const TemporaryDirectory scratch;
  const std::string out = scratch / "out";
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("LC_ALL", "C", 1);  // as in a container
    if (std::freopen(out.c_str(), "w", stdout) == nullptr) _exit(99);
    std::vector<char*> words = {const_cast<char*>(ProgramPath())};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(99);
  }
  // Typed once the prompt is there; then whatever is echoed is read until the program ends.
  std::string echoed;
  bool sent = false;
  char buffer[4096];
  for (ssize_t count; (count = read(terminal, buffer, sizeof buffer)) > 0;) {
    echoed.append(buffer, static_cast<size_t>(count));
    if (!sent && echoed.find("> ") != std::string::npos) {
      sent = true;
      EXPECT_EQ(write(terminal, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(terminal);
  EXPECT_EQ(status, 0) << echoed;
  return ReadFile(out);
}

TEST_F(GenerateCommandTest, ATerminalGivesEveryCharacter) {
  const std::string typed = "caf\u00e9 \u65e5\u672c \U0001f600";
  const std::string out =
      OnTerminal({"generate", RunPath(), "--json", "-n", "1", "--quiet", "--context", "slide"},
                 typed + "\n\n");
  EXPECT_EQ(Json::parse(out)["prompt"], typed) << out;
}

TEST_F(GenerateCommandTest, WrongValuesGetOneLineAndStatus2) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--temperature", "-1"}, "temperature: got -1, expected 0 to 100"},
      {{"--temperature", "nan"}, "temperature: got nan, expected 0 to 100"},
      {{"--temperature", "hot"}, "--temperature: got 'hot', expected a number; see "},
      {{"--top-p", "0"}, "top_p: got 0, expected more than 0 and at most 1"},
      {{"--top-k", "-3"}, "top_k: got -3, expected 0 to "},
      {{"--top-k", "1.5"}, "--top-k: got '1.5', expected a whole number; see "},
      {{"--min-p", "2"}, "min_p: got 2, expected 0 to 1"},
      {{"--repetition-penalty", "0"}, "repetition_penalty: got 0, expected 0.01 to 100"},
      {{"--logprobs", "-1"}, "--logprobs: got '-1', expected a whole number"},
      {{"--seed", "-1"}, "--seed: got '-1', expected a whole number of at least 0; see "},
      {{"--samples", "0"}, "samples: got 0, expected 1 to 1024"},
      {{"-n", "-5"}, "max_tokens: got -5, expected 0 to "},
      {{"--stop", ""}, "stop: got an empty string, expected at least one character"},
      {{"--stop", "x", "y"}, "unexpected argument 'y'; see "},
      {{"--logprobs"}, "--logprobs"},
      {{"--context", "slid"},
       "--context: got 'slid', expected stop, slide (did you mean 'slide'?)"},
      {{"--precision", "fp64"}, "--precision: got 'fp64', expected auto, fp32, bf16"},
      {{"--prompt-file", "x"}, "--prompt excludes --prompt-file"},
      {{"--tempreature", "1"}, "unknown option '--tempreature' (did you mean '--temperature'?)"},
  };
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> call = {"generate", RunPath(), "-p", "a"};
    call.insert(call.end(), arguments.begin(), arguments.end());
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.rfind("error: " + message, 0), 0u) << result.err << message;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(GenerateCommandTest, WrongRunsAndFilesGetOneLineAndStatus1) {
  std::filesystem::create_directories(*scratch_ / "empty");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{*scratch_ / "missing", "-p", "a"}, "missing: no such run directory"},
      {{*scratch_ / "a.txt", "-p", "a"}, "a.txt is a file, expected a run directory"},
      {{*scratch_ / "empty", "-p", "a"}, "empty: not a run directory (no config.json)"},
      {{RunPath(), "--prompt-file", *scratch_ / "missing"}, "No such file or directory"},
      {{RunPath(), "--prompt-file", *scratch_ / "empty"}, "empty is a directory, expected a file"},
  };
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> call = {"generate"};
    call.insert(call.end(), arguments.begin(), arguments.end());
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 1) << message;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(GenerateCommandTest, ADamagedFileOfWeightsIsReplacedByTheCheckpoint) {
  const std::string copy = *scratch_ / "damaged";
  std::filesystem::copy(RunPath(), copy, std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(copy + "/model.safetensors", 1000);
  const ProgramResult result = RunProgram({"generate", copy, "-p", "a", "-n", "3"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err.rfind("warning: ", 0), 0u) << result.err;
  EXPECT_NE(result.err.find("using the checkpoint of step 30"), std::string::npos) << result.err;
}

TEST_F(GenerateCommandTest, ACheckpointUsesTheTokenizerOfItsRun) {
  const std::string checkpoint = RunPath() + "/checkpoints/step-00000030";
  const ProgramResult result = RunProgram({"generate", checkpoint, "-p", "the", "-n", "5", "--seed",
                                           "0", "--threads", "1", "--precision", "fp32"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, Text({"-p", "the", "-n", "5"}));
}

TEST_F(GenerateCommandTest, AMissingTokenizerIsNamed) {
  const std::string copy = *scratch_ / "mute";
  std::filesystem::copy(RunPath(), copy, std::filesystem::copy_options::recursive);
  std::filesystem::remove(copy + "/tokenizer.json");
  const ProgramResult result = RunProgram({"generate", copy, "-p", "a"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err.rfind("error: " + copy + "/tokenizer.json: missing", 0), 0u) << result.err;
}

TEST_F(GenerateCommandTest, ASignalEndsTheText) {
  // The program that is asked for a million tokens gets its signal from the shell that started it,
  // late enough that a busy machine has loaded the model by then. Without --foreground it would
  // come twice, and a second one ends the program at once.
  const ProgramResult result = RunProgram({"generate", RunPath(), "-p", "the", "--context", "slide",
                                           "--ignore-end", "-n", "100000000", "--json"},
                                          "", "timeout --foreground --signal=INT 6");
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["samples"][0]["finish_reason"], "cancelled");
  EXPECT_NE(result.err.find("error: generate: stopped by a signal\n"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace denseformer

#include "analysis/run_data.h"

#include <chrono>
#include <cmath>

#include "analysis/study.h"
#include "analysis/testing.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

class RunDataTest : public TrainedRunTest {};

TEST_F(RunDataTest, ReadsWhatARunRecords) {
  const std::string path = TrainRun("run", "2x1");
  const RunData run = ReadRun(path + "/");
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.config.dwa, "2x1");
  EXPECT_EQ(run.summary["steps"], 6);
  EXPECT_TRUE(Contains(run.options, "[train]"));
  EXPECT_EQ(run.train_loss.step, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(run.validation_loss.step, (std::vector<double>{2, 4, 6}));
  // A step has 4 x 32 tokens; validations do not record them.
  EXPECT_EQ(run.train_loss.tokens[2], 3 * 4 * 32);
  EXPECT_EQ(run.validation_loss.tokens[2], 6 * 4 * 32);
  EXPECT_EQ(run.alphas.size(), 4u);
  EXPECT_TRUE(run.studies.empty());
}

TEST_F(RunDataTest, FilesThatARunNeedNotHave) {
  const std::string path = TrainRun("run", "2x1");
  for (const char* file : {"metrics.jsonl", "alphas.jsonl", "summary.json", "train.toml"})
    fs::remove(path + "/" + file);
  RunData run = ReadRun(path);
  EXPECT_TRUE(run.train_loss.value.empty());
  EXPECT_TRUE(run.summary.is_null());
  WriteFileAtomic(path + "/metrics.jsonl", "");
  WriteFileAtomic(path + "/alphas.jsonl", "{\"step\":0,");  // being written
  run = ReadRun(path);
  EXPECT_TRUE(run.train_loss.value.empty());
  EXPECT_TRUE(run.alphas.empty());
}

TEST_F(RunDataTest, DamagedLinesAreNamed) {
  const std::string path = TrainRun("run", "2x1");
  const std::pair<const char*, const char*> damages[] = {
      {"metrics.jsonl", "{\"step\":3,\"loss\":"},
      {"metrics.jsonl", "[1]"},
      {"metrics.jsonl", "{\"loss\":2.5}"},
      {"metrics.jsonl", "{\"step\":\"x\",\"val_loss\":2.5}"},
      {"alphas.jsonl", "nonsense"},
      {"alphas.jsonl", "{\"step\":1}"},
      {"alphas.jsonl", "{\"step\":1,\"alphas\":[1]}"},
      {"alphas.jsonl", "{\"step\":1,\"alphas\":{\"x\":[1]}}"},
      {"alphas.jsonl", "{\"step\":1,\"alphas\":{\"1\":1}}"}};
  for (const auto& [file, line] : damages) {
    const std::string name = path + "/" + file, whole = ReadFile(name);
    const size_t first = whole.find('\n') + 1;
    WriteFileAtomic(name, whole.substr(0, first) + line + "\n" + whole.substr(first));
    EXPECT_TRUE(Contains(ErrorOf([&] { ReadRun(path); }), name + ":2")) << line;
    WriteFileAtomic(name, whole);
  }
  const std::string metrics = path + "/metrics.jsonl", whole = ReadFile(metrics);
  WriteFileAtomic(metrics, whole + "{\"step\": 9, \"loss\": \"NaN\"}\n");
  EXPECT_TRUE(Contains(ErrorOf([&] { ReadRun(path); }), "'loss' is \"NaN\", expected a number"));
  WriteFileAtomic(metrics, "\x80\xff\x01 random bytes");
  EXPECT_TRUE(Contains(ErrorOf([&] { ReadRun(path); }), "metrics.jsonl: expected lines of JSON"));
  WriteFileAtomic(metrics, whole);
  WriteFileAtomic(path + "/summary.json", "{");
  EXPECT_TRUE(Contains(ErrorOf([&] { ReadRun(path); }), path + "/summary.json: expected a JSON"));
  EXPECT_TRUE(
      Contains(ErrorOf([&] { ReadRun(scratch_ / "none"); }), "none: no such run directory"));
}

TEST_F(RunDataTest, StudiesAreReadCheckedAndDated) {
  const std::string path = TrainRun("run", "2x1"), file = path + "/analysis/cosine.json";
  fs::create_directories(path + "/analysis");
  WriteFileAtomic(file, FindStudy("cosine")->run(ReadRun(path), {}).dump());
  WriteFileAtomic(path + "/analysis/notes.json", "not ours");
  RunData run = ReadRun(path);
  EXPECT_TRUE(run.studies.contains("cosine"));
  EXPECT_EQ(run.studies.size(), 1u);
  EXPECT_TRUE(run.outdated.empty());
  fs::last_write_time(path + "/model.safetensors",
                      fs::last_write_time(file) + std::chrono::seconds(5));
  EXPECT_EQ(ReadRun(path).outdated, std::vector<std::string>{"cosine"});
  WriteFileAtomic(file, "{\"study\":\"cosine\"}");
  EXPECT_TRUE(Contains(ErrorOf([&] { ReadRun(path); }), file + ": not a study 'cosine'"));
}

TEST_F(RunDataTest, NamesTellRunsApart) {
  fs::create_directories(scratch_ / "x");
  fs::create_directories(scratch_ / "y");
  fs::create_directories(scratch_ / "z/x");
  const std::string a = TrainRun("x/run", "none"), b = TrainRun("y/run", "none"),
                    c = TrainRun("z/x/run", "none"), d = TrainRun("other", "none");
  const std::vector<RunData> runs = ReadRuns({a, b, d});
  EXPECT_EQ(runs[0].name, "x/run");
  EXPECT_EQ(runs[1].name, "y/run");
  EXPECT_EQ(runs[2].name, "other");
  const std::vector<RunData> more = ReadRuns({a, c});
  EXPECT_NE(more[0].name, more[1].name);
  EXPECT_TRUE(Contains(ErrorOf([&] { ReadRuns({a, scratch_ / "x/../x/run"}); }), "given twice"));
}

TEST(Describe, SaysWhatTheModelIs) {
  ModelConfig config = ModelConfig::Preset("test");
  EXPECT_EQ(Describe(config), "4 blocks, Transformer");
  config.gains = true;
  EXPECT_EQ(Describe(config), "4 blocks, skips with gains");
  config.dwa = "4x5";
  EXPECT_EQ(Describe(config), "4 blocks, 4x5 with gains");
  config.dwa = "mask:01";
  config.gains = false;
  EXPECT_EQ(Describe(config), "4 blocks, custom pattern");
  config.dwa = "1x1";
  config.mixer = "dynamic";
  EXPECT_EQ(Describe(config), "4 blocks, 1x1+dynamic");
  config.streams = "rv";
  config.mixer_norm = "prepost";
  EXPECT_EQ(Describe(config), "4 blocks, 1x1+dynamic+rv+prepost");
}

}  // namespace
}  // namespace denseformer

// Options: precedence, wrong keys and values, the stored form, changes on resume, the document.
#include "train/options.h"

#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "base/mutation_testing.h"
#include "base/printable.h"
#include "base/testing.h"
#include "base/text.h"

namespace denseformer {
namespace {

OptionSources Toml(const std::string& text) {
  OptionSources sources;
  sources.toml = text;
  sources.toml_name = "run.toml";
  return sources;
}

TEST(OptionsTest, LaterSourcesWin) {
  OptionSources sources =
      Toml("preset = \"test\"\n[train]\nsteps = 100\nbatch_size = 6\nseed = 5\n");
  EXPECT_EQ(ResolveOptions({}).preset, "tiny");
  TrainOptions options = ResolveOptions(sources);
  EXPECT_EQ(options.model, ModelConfig::Preset("test"));
  EXPECT_EQ(options.steps, 100);
  sources.sets = {ParseSet("train.batch_size=8"), ParseSet("seed = 6")};
  sources.flags = {{"train.seed", "7"}};
  options = ResolveOptions(sources);
  EXPECT_EQ(options.steps, 100);
  EXPECT_EQ(options.batch_size, 8);
  EXPECT_EQ(options.seed, 7);
  sources.preset = "small";
  EXPECT_EQ(ResolveOptions(sources).model, ModelConfig::Preset("small"));
  EXPECT_EQ(ResolveOptions(sources).steps, 100);
}

TEST(OptionsTest, EveryOptionSurvivesTheStoredForm) {
  TrainOptions options = PresetOptions("test");
  // Every value other than its default.
  for (const OptionRow& row : TrainOptionTable()) {
    if (row.key == "model.n_embd") row.set(options, "64");
    if (row.key == "model.n_head") row.set(options, "8");
    if (row.key == "model.n_layer") row.set(options, "6");
    if (row.key == "model.vocab_size" || row.key == "model.seq_len") row.set(options, "96");
    if (row.key == "model.dwa") row.set(options, "2x3");
    if (row.key == "model.mixer") row.set(options, "dynamic");
    if (row.key == "model.streams") row.set(options, "rv");
    if (row.key == "model.mixer_norm") row.set(options, "prepost");
    if (row.key == "train.batch_size") row.set(options, "12");
    if (row.key == "train.accumulate") row.set(options, "3");
    if (row.key.starts_with("model.") || row.key.starts_with("train.batch") ||
        row.key == "train.accumulate") {
      if (row.type != "true/false") continue;
    }
    if (row.type == "true/false") row.set(options, row.get(options) == "true" ? "false" : "true");
    if (row.type == "integer") row.set(options, "17");
    if (row.type == "number") row.set(options, "0.12345678901234567");
    if (row.key == "optimizer.schedule") row.set(options, "linear");
    if (row.key == "train.precision") row.set(options, "bf16");
    if (row.key == "data.order") row.set(options, "random");
    if (row.key == "data.path") row.set(options, "a \"quoted\" \\ path");
    if (row.key == "log.alphas_at") row.set(options, "1,2");
    if (row.key == "train.init") row.set(options, "/runs/first");
  }
  const TrainOptions defaults = PresetOptions("test");
  for (const OptionRow& row : TrainOptionTable()) {
    EXPECT_NE(row.get(options), row.get(defaults)) << row.key;
  }
  EXPECT_EQ(ParseStoredOptions(ToToml(options), "train.toml"), options);
  options.init = "";  // the weights are not there
  EXPECT_EQ(ResolveOptions(Toml(ToToml(options))), options);
}

// Whatever is wrong gets one line; the same text never means two things.
void ExpectOptionsOrOneLine(const std::string& toml) {
  try {
    const TrainOptions options = ResolveOptions(Toml(toml));
    ASSERT_EQ(ParseStoredOptions(ToToml(options), "train.toml"), options) << toml;
  } catch (const Error& error) {
    const std::string message = error.what();
    ASSERT_NE(error.code(), ErrorCode::kInternal) << message;
    ASSERT_EQ(Printable(message), message) << toml;
  }
}

TEST(OptionsTest, RandomChangesOfAFileAreFoundOrMeanOptions) {
  TrainOptions options = PresetOptions("test");
  options.data = "data";
  options.log_alphas_at = "1,2";
  const std::string toml = ToToml(options, "../data");
  Random random(11);
  for (int round = 0; round < 3'000; ++round) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectOptionsOrOneLine(Mutated(toml, "=[]\"'\\n#.,-_0179e{} \n", random)));
  }
}

TEST(OptionsTest, EveryMisspelledKeyOfAFileIsFound) {
  std::set<std::string> known = {"preset", "data_from_run"};
  for (const OptionRow& row : TrainOptionTable()) {
    known.insert(row.key);
    known.insert(row.ShortKey());
  }
  TrainOptions options = PresetOptions("test");
  options.precision = "fp32";
  const std::vector<std::string> lines = Split(ToToml(options, "../data"), '\n');
  Random random(12);
  std::string section;
  for (size_t n = 0; n < lines.size(); ++n) {
    if (lines[n].starts_with('[')) section = lines[n].substr(1, lines[n].size() - 2) + ".";
    const size_t equals = lines[n].find(" = ");
    if (equals == std::string::npos) continue;
    for (int round = 0; round < 20; ++round) {
      std::string key = lines[n].substr(0, equals);
      key[random.Below(key.size())] = static_cast<char>('a' + random.Below(26));
      if (known.contains(section + key)) continue;
      std::vector<std::string> changed = lines;
      changed[n] = key + lines[n].substr(equals);
      EXPECT_TRUE(ErrorOf([&] {
                    ResolveOptions(Toml(Join(changed, "\n")));
                  }).starts_with(fmt::format("run.toml:{}: unknown key '", n + 1)))
          << changed[n];
    }
  }
}

TEST(OptionsTest, KeysAndFlagsAreUnique) {
  std::set<std::string> names;
  for (const OptionRow& row : TrainOptionTable()) {
    EXPECT_TRUE(names.insert(row.key).second) << row.key;
    EXPECT_TRUE(names.insert(row.ShortKey()).second) << row.ShortKey();
    EXPECT_FALSE(row.help.empty());
  }
}

TEST(OptionsTest, WrongInputIsNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"[train]\nstep = 3\n", "run.toml:2: unknown key 'train.step' (did you mean 'train.steps'?)"},
      {"[trian]\nsteps = 3\n",
       "run.toml:2: unknown key 'trian.steps' (did you mean 'train.steps'?)"},
      {"[train]\nsteps = \"3\"\n", "run.toml:2: train.steps is of type string, expected integer"},
      {"[train]\nsteps = 3.5\n",
       "run.toml:2: train.steps is of type floating-point, expected integer"},
      {"[train]\nprecision = 3\n",
       "run.toml:2: train.precision is of type integer, expected string"},
      {"steps = 3\n[train]\nsteps = 4\n", "is given twice"},
      {"[train]\nsteps = 3\nsteps = 4\n", "run.toml:3: "},
      {"[train\n", "run.toml:1: "},
      {"[%]\n", "run.toml: not TOML; "},
      {"[train]\nsteps = 0\n", "train.steps"},
      {"[optimizer]\nlr = nan\n", "optimizer.lr"},
      {"[optimizer]\nschedule = \"cosin\"\n",
       "optimizer.schedule: got 'cosin', expected one of cosine, linear, constant (did you mean "
       "'cosine'?)"},
      {"[model]\nn_head = 7\n", "model.n_head: got 7, expected a divisor of n_embd"},
      {"[train]\nbatch_size = 6\naccumulate = 4\n",
       "train.accumulate: got 4, expected a divisor of train.batch_size = 6"},
      {"preset = \"tny\"\n", "did you mean 'tiny'?"},
      {"[log]\nalphas_at = \"1,x\"\n", "log.alphas_at"},
      {"[model]\ndwa = \"3y4\"\n", "3y4"},
      {"[optimizer]\nseed = 3\n", "unknown key 'optimizer.seed' (did you mean 'train.seed'?)"},
      {"train = 3\n", "unknown key 'train'"},
      {"\"a\\nb\" = 3\n", "unknown key 'a\\nb'"},
      {"preset = \"a\\nb\"\n", "preset: got 'a\\nb'"},
      {"[model]\nmixer = \"a\\nb\"\n", "model.mixer: control characters are not allowed"},
      {"[[train]]\nsteps = 3\n", "unknown key 'train'"},
  };
  for (const auto& [text, message] : cases) {
    const std::string error = ErrorOf([&text = text] { ResolveOptions(Toml(text)); });
    EXPECT_NE(error.find(message), std::string::npos) << text << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_EQ(ErrorOf([] { ParseSet("steps"); }), "--set: got 'steps', expected key=value");
  EXPECT_EQ(ErrorOf([] { ParseSet("stps=3"); }),
            "--set: unknown key 'stps' (did you mean 'steps'?)");
}

TEST(OptionsTest, AMaskFileBecomesAPattern) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "mask.txt", "11\n001\n1101\n10001\n");
  OptionSources sources;
  sources.preset = "test";
  sources.flags = {{"model.dwa", scratch / "mask.txt"}};
  EXPECT_EQ(ResolveOptions(sources).model.dwa.substr(0, 5), "mask:");
}

TEST(OptionsTest, ResumeRefusesWhatAltersTheCourse) {
  OptionSources sources;
  sources.preset = "test";
  const TrainOptions stored = ResolveOptions(sources);
  EXPECT_EQ(ResolveResumed(stored, sources, {}), stored);
  sources.flags = {{"save.every", "3"}, {"train.steps", "20"}};
  EXPECT_EQ(ResolveResumed(stored, sources, {}).save_every, 3);
  sources.flags = {{"train.steps", "30"}};
  sources.sets = {{"optimizer.lr", "0.5"}};
  EXPECT_EQ(ErrorOf([&] { ResolveResumed(stored, sources, {}); }),
            "resume: changed settings would alter the course of the run: train.steps (30, was 20), "
            "optimizer.lr (0.5, was 0.01); start a new run, or allow each with --force KEY");
  EXPECT_EQ(ErrorOf([&] { ResolveResumed(stored, sources, {"lr"}); }),
            "resume: changed settings would alter the course of the run: train.steps (30, was 20); "
            "start a new run, or allow each with --force KEY");
  const TrainOptions forced = ResolveResumed(stored, sources, {"steps", "optimizer.lr"});
  EXPECT_EQ(forced.steps, 30);
  EXPECT_EQ(forced.lr, 0.5);
  EXPECT_EQ(ErrorOf([&] { ResolveResumed(stored, sources, {"step"}); }),
            "--force: unknown key 'step' (did you mean 'steps'?)");
  sources = {};
  sources.flags = {{"model.n_layer", "5"}};
  EXPECT_EQ(ErrorOf([&] { ResolveResumed(stored, sources, {"steps"}); }),
            "resume: model.n_layer is 5, but the run was started with 4; start a new run");
  EXPECT_EQ(ErrorOf([&] { ResolveResumed(stored, sources, {"n_layer"}); }),
            "resume: model.n_layer is 5, but the run was started with 4; start a new run");
  sources = {};
  sources.preset = "tiny";
  EXPECT_EQ(ErrorOf([&] { ResolveResumed(stored, sources, {}); }),
            "resume: got preset 'tiny', but the run was started with 'test'");
}

TEST(OptionsTest, AlphaSteps) {
  TrainOptions options = PresetOptions("test");
  options.steps = 100;
  EXPECT_EQ(options.AlphaSteps().size(), 51u);
  options.log_alphas_every = 40;
  options.log_alphas_at = "7, 41";
  EXPECT_EQ(options.AlphaSteps(), (std::vector<int64_t>{0, 7, 40, 41, 80, 100}));
}

TEST(OptionsTest, EveryPresetResolves) {
  for (const std::string& name : ModelConfig::PresetNames()) {
    EXPECT_NO_THROW(PresetOptions(name).Validate()) << name;
  }
}

TEST(OptionsTest, DocumentIsUpToDate) {
  EXPECT_EQ(ReadFile(SourceDirectory() + "/docs/options.md"), OptionsDocument())
      << "run: denseformer train --print-options > docs/options.md";
}

}  // namespace
}  // namespace denseformer

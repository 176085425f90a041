// Sweep files: variables, grids, scales; whatever is wrong is named with its line, and no random
// change of a file is taken for something else.
#include "sweep/sweep_file.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"
#include "base/file.h"
#include "base/mutation_testing.h"
#include "base/printable.h"
#include "base/testing.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr const char* kScales = R"([micro]
data = "novels"
seeds = [1, 2]
steps = 100
rates = [0.001, 0.002]
rate = 0.004

[micro.options]
preset = "test"
"eval.every" = 10

[paper]
data = "web"
)";

constexpr const char* kSweep = R"(title = "Table 1"
text = "What it shows."
scales = "scales.toml"
baseline = "none"
data = "$data"
seeds = "$seeds"
studies = ["cosine"]

[options]
steps = "$steps * 1.5"

[[row]]
name = "none"
paper = 18.61
note = "a remark"
options = { dwa = "none", lr = "$rate" }

[[row]]
name = "long"
options = { dwa = "none", lr = "$rate", steps = "$steps * 2" }

[[row]]
name = "large"
only = ["paper"]
options = { dwa = "4x5" }

[[grid]]
name = "{dwa}, rate {lr}"
axes = { dwa = ["1x1", "2x1"], lr = "$rates" }

[[claim]]
text = "It helps."
metric = "perplexity"
less = ["1x1, rate 0.001", "none"]

[[claim]]
text = "It does not matter."
equal = ["1x1, rate 0.001", 3.5]
margin = 0.1

[[exchange]]
model = "1x1, rate 0.001"
others = ["none", "long"]

[[chart]]
kind = "option"
title = "Loss by rate"
rows = ["none"]
x = "lr"
series = "dwa"
)";

class SweepFileTest : public testing::Test {
 protected:
  SweepFileTest() { WriteFileAtomic(scratch_ / "scales.toml", kScales); }

  SweepFile Parse(const std::string& text) const {
    return ParseSweepFile(text, scratch_ / "sweep.toml", "micro");
  }
  // The message without the directory of the test.
  std::string Problem(const std::string& text) const {
    std::string message = ErrorOf([&] { Parse(text); });
    const std::string directory = scratch_.path() + "/";
    const size_t at = message.find(directory);
    return at == std::string::npos ? message : message.erase(at, directory.size());
  }
  // kSweep with `from` replaced.
  static std::string With(const std::string& from, const std::string& to) {
    std::string text = kSweep;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  // A sweep, or an error of one line that is not a bug.
  void ExpectSweepOrOneLine(const std::string& text) const {
    try {
      const SweepFile file = Parse(text);
      ASSERT_FALSE(file.rows.empty());
    } catch (const Error& error) {
      const std::string message = error.what();
      ASSERT_NE(error.code(), ErrorCode::kInternal) << message;
      ASSERT_EQ(Printable(message), message) << text;
    }
  }

  const TemporaryDirectory scratch_;
};

TEST_F(SweepFileTest, VariablesAndGrids) {
  const SweepFile file = Parse(kSweep);
  std::vector<std::string> names;
  for (const SweepRow& row : file.rows) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string>{"none", "long", "1x1, rate 0.001", "1x1, rate 0.002",
                                             "2x1, rate 0.001", "2x1, rate 0.002"}));
  const TrainOptions options = file.rows[3].OptionsOf(7);
  EXPECT_EQ(options.model.dwa, "1x1");
  EXPECT_EQ(options.lr, 0.002);
  EXPECT_EQ(options.steps, 150);
  EXPECT_EQ(options.eval_every, 10);
  EXPECT_EQ(options.seed, 7);
  EXPECT_EQ(file.rows[0].data, "novels");
  EXPECT_EQ(file.rows[0].seeds, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file.claims.size(), 2u);
  EXPECT_EQ(file.charts.size(), 1u);
  ASSERT_EQ(file.exchanges.size(), 1u);
  EXPECT_EQ(file.exchanges[0].model, "1x1, rate 0.001");
  EXPECT_EQ(file.exchanges[0].others, (std::vector<std::string>{"none", "long"}));
}

TEST_F(SweepFileTest, WrongInputIsNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {With("note = ", "nte = "), "sweep.toml:15: unknown key 'nte' (did you mean 'note'?)"},
      {With("only = [\"paper\"]", "only = [\"papr\"]"),
       "sweep.toml:24: unknown scale 'papr' (did you mean 'paper'?); there are: micro, paper"},
      {With("paper = 18.61", "paper = nan"), "sweep.toml:14: paper: expected a finite number"},
      {With("3.5]", "inf]"), "sweep.toml:38: equal: expected [\"ROW\", \"ROW\" or NUMBER]"},
      {With("\"$rate\"", "\"$rat\""), "sweep.toml:16: unknown variable '$rat'"},
      {With("* 1.5", "* x"), "sweep.toml:10: factor: got 'x', expected a number"},
      {With("* 1.5", "* -1"), "'none': train.steps: got -100"},
      // A value that holds the mark of its own axis.
      {With("[\"1x1\", \"2x1\"]", "[\"{dwa}{dwa}\"]"), "'{dwa}{dwa}'"},
      {With("name = \"none\"", "name = \"a\\nb\""), "the name 'a\\nb' has control characters"},
      {With("metric = \"perplexity\"", "metric = \"a\\nb\""), "got metric 'a\\nb'"},
      {With("seeds = \"$seeds\"", "seeds = [1, 1]"), "sweep.toml:6: a seed is given twice"},
      {With("axes = { dwa = [\"1x1\", \"2x1\"]", "axes = { dwa = []"),
       "sweep.toml:29: dwa: expected a list with values"},
      {With("\"none\", \"long\"]", "\"none\"]"),
       "sweep.toml:41: an exchange needs a model and two others or more"},
      {With("\"none\", \"long\"]", "\"none\", \"2x1, rate 0.001\"]"),
       "sweep.toml:43: two of the others have the same number of steps"},
      {With("\"none\", \"long\"]", "\"none\", \"lng\"]"), "sweep.toml:43: no row 'lng'"},
      {With("kind = \"option\"", "kind = \"time\""), "series belongs to charts of kind option"},
      {With("kind = \"option\"\ntitle = \"Loss by rate\"\nrows = [\"none\"]\nx = \"lr\"\nseries = "
            "\"dwa\"",
            "kind = \"speed\""),
       "a chart of kind speed needs x"},
  };
  for (const auto& [text, message] : cases) {
    const std::string problem = Problem(text);
    EXPECT_NE(problem.find(message), std::string::npos) << problem << "\nexpected " << message;
    EXPECT_EQ(Printable(problem), problem);
  }
}

TEST_F(SweepFileTest, AMultipleOfAWholeNumberStaysInItsRange) {
  WriteFileAtomic(scratch_ / "scales.toml",
                  kScales + std::string("[huge]\nsteps = 9000000000000000\n"));
  const std::string text = "scales = \"scales.toml\"\n[options]\nsteps = \"$steps * 1000\"\n";
  ExpectError(ErrorCode::kInvalid, "is 9e+18, too large for a whole number",
              [&] { ParseSweepFile(text, scratch_ / "sweep.toml", "huge"); });
}

TEST_F(SweepFileTest, GridsAreBounded) {
  std::string axes;
  for (const char* key : {"lr", "lr_start", "lr_end", "warmup", "clip"}) {
    axes += fmt::format("{}{} = [", axes.empty() ? "" : ", ", key);
    for (int n = 0; n < 10; ++n) axes += fmt::format("0.{}1, ", n);
    axes += "]";
  }
  EXPECT_EQ(Problem("scales = \"scales.toml\"\ndata = \"d\"\n[[grid]]\naxes = { " + axes + " }\n"),
            "sweep.toml:3: the grid has more than 10000 combinations; split it");
}

TEST_F(SweepFileTest, RandomChangesAreFoundOrMeanASweep) {
  constexpr std::string_view kAlphabet = "=[]\"'\\n#.,-_0179e{}$* \n";
  Random random(21);
  for (int round = 0; round < 1'500; ++round) {
    ASSERT_NO_FATAL_FAILURE(ExpectSweepOrOneLine(Mutated(kSweep, kAlphabet, random)));
  }
  for (int round = 0; round < 1'500; ++round) {
    WriteFileAtomic(scratch_ / "scales.toml", Mutated(kScales, kAlphabet, random));
    ASSERT_NO_FATAL_FAILURE(ExpectSweepOrOneLine(kSweep));
  }
}

TEST_F(SweepFileTest, EveryMisspelledKeyIsFound) {
  const std::vector<std::string> lines = Split(kSweep, '\n');
  Random random(22);
  for (size_t n = 0; n < lines.size(); ++n) {
    const size_t equals = lines[n].find(" = ");
    if (equals == std::string::npos) continue;
    for (int round = 0; round < 10; ++round) {
      std::vector<std::string> changed = lines;
      // No key has a capital letter.
      changed[n][random.Below(equals)] = static_cast<char>('A' + random.Below(26));
      EXPECT_NE(Problem(Join(changed, "\n")), "no error") << changed[n];
    }
  }
}

}  // namespace
}  // namespace denseformer

#include "analysis/study.h"

#include <algorithm>
#include <cmath>

#include "analysis/depth_weights.h"
#include "analysis/similarity.h"
#include "analysis/spectra.h"
#include "analysis/testing.h"
#include "train/evaluate.h"
#include "train/train_data.h"

namespace denseformer {
namespace {

StudyJson RunStudy(const std::string& name, const RunData& run, const StudyOptions& options) {
  return FindStudy(name)->run(run, options);
}

std::string CsvOf(const StudyJson& json) { return FindStudy(json.at("study"))->csv(json); }

std::vector<std::string> SentencesOf(const StudyJson& json) {
  return FindStudy(json.at("study"))->sentences(json);
}

class StudyTest : public TrainedRunTest {
 protected:
  static Model Load(const std::string& run) {
    return LoadModel(run, DType::kF32, ModelUse::kInference);
  }
  std::string TrainMixed(const std::string& name, int64_t seed = 1) const {
    return TrainRun(name, "1x1", seed, 4, 2, "dynamic", "rv");
  }
  double Loss(const Model& model, int64_t tokens) const {
    const TokenFile file(data_ + "/" + kValidationFile);
    Activations activations(model, 8, model.config().seq_len, ModelUse::kInference);
    EvalOptions options;
    options.max_tokens = tokens;
    return EvaluateStream(model, file, activations, options).loss;
  }
};

TEST_F(StudyTest, WeightsAreThoseOfTheModel) {
  const std::string path = TrainRun("run", "2x1");
  const StudyJson study = RunStudy("weights", ReadRun(path), {});
  const Model model = Load(path);
  for (int i = 0; i <= 4; ++i) {
    const std::vector<int>& sources = model.pattern().sources(i);
    for (int j = 0; j <= 4; ++j) {
      const auto found = std::find(sources.begin(), sources.end(), j);
      const StudyJson& value = study["mean"][i][j];
      if (found == sources.end()) {
        EXPECT_TRUE(value.is_null()) << i << " " << j;
      } else {
        EXPECT_EQ(value.get<double>(), model.tensors().alphas[i].f32()[found - sources.begin()]);
      }
      EXPECT_TRUE(study["standard_error"][i][j].is_null());
    }
  }
}

TEST_F(StudyTest, MeanOverSeeds) {
  std::vector<NamedStudy> studies;
  std::vector<Model> models;
  for (int seed : {1, 2, 3}) {
    const std::string path = TrainRun("seed-" + std::to_string(seed), "1x1", seed);
    studies.push_back({path, RunStudy("weights", ReadRun(path), {})});
    models.push_back(Load(path));
  }
  const StudyJson mean = FindStudy("weights")->mean(studies);
  EXPECT_EQ(mean["runs"].size(), 3u);
  for (int i = 1; i <= 4; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = 0, squares = 0;
      for (const Model& model : models) {
        const double weight = model.tensors().alphas[i].f32()[j];
        sum += weight;
        squares += weight * weight;
      }
      const double variance = (squares - sum * sum / 3) / 2;
      EXPECT_NEAR(mean["mean"][i][j].get<double>(), sum / 3, 1e-12);
      EXPECT_NEAR(mean["standard_error"][i][j].get<double>(), std::sqrt(variance / 3), 1e-7);
    }
  }
}

TEST_F(StudyTest, RunsOfDifferentDepthAreNotAveraged) {
  const std::string deep = TrainRun("deep", "1x1", 1, 5), flat = TrainRun("flat", "1x1");
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         FindStudy("weights")->mean(
                             {{"deep", RunStudy("weights", ReadRun(deep), {})},
                              {"flat", RunStudy("weights", ReadRun(flat), {})}});
                       }),
                       "deep (5 blocks) and flat (4 blocks) cannot be averaged"));
}

TEST_F(StudyTest, EvolutionHasEverySnapshot) {
  const std::string path = TrainRun("run", "2x2");
  const StudyJson study = RunStudy("evolution", ReadRun(path), {});
  const std::vector<StudyJson> lines = ReadJsonLines(path + "/alphas.jsonl");
  ASSERT_EQ(study["steps"], StudyJson({0, 2, 4, 6}));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(study["sources"]["4"], StudyJson({0, 2, 4}));
  for (size_t t = 0; t < 4; ++t) {
    for (const char* block : {"2", "4"})
      EXPECT_EQ(study["modules"][block][t], lines[t]["alphas"][block]);
  }
  // Weights on older outputs: one of block 2, two of block 4.
  const StudyJson& last = lines[3]["alphas"];
  const double size = (std::abs(last["2"][0].get<double>()) + std::abs(last["4"][0].get<double>()) +
                       std::abs(last["4"][1].get<double>())) /
                      3;
  const LineChart chart = std::get<LineChart>(FindStudy("evolution")->charts({{"run", study}})[0]);
  EXPECT_NEAR(chart.series[0].y[3], size, 1e-12);
  EXPECT_EQ(chart.series[0].y[0], 0);
}

TEST_F(StudyTest, SourcesFollowWeightsAndNorms) {
  const std::string path = TrainRun("run", "1x1");
  const RunData run = ReadRun(path);
  const StudyJson study = RunStudy("sources", run, {}), cosine = RunStudy("cosine", run, {});
  const Model model = Load(path);
  for (const StudyJson& module : study["modules"]) {
    const int block = module["block"];
    const float* alphas = model.tensors().alphas[block].f32();
    double sum = 0, last = 1;
    for (int j = 0; j <= block; ++j) sum += std::abs(alphas[j]) * cosine["norm_x"][j].get<double>();
    for (const StudyJson& source : module["sources"]) {
      const int j = source["source"];
      EXPECT_NEAR(source["share"].get<double>(),
                  std::abs(alphas[j]) * cosine["norm_x"][j].get<double>() / sum, 1e-12);
      EXPECT_LE(source["share"].get<double>(), last);
      last = source["share"];
    }
  }
  EXPECT_EQ(study["modules"].size(), 4u);
}

TEST_F(StudyTest, CosineAndSpectraAreTheMeasurements) {
  const std::string path = TrainRun("run", "none");
  StudyOptions options;
  options.tokens = 64;
  const StudyJson cosine = RunStudy("cosine", ReadRun(path), options);
  const Model model = Load(path);
  const DepthSimilarity similarity =
      MeasureSimilarity(model, TokenFile(data_ + "/" + kValidationFile), 64);
  EXPECT_EQ(cosine["tokens"], 64);
  EXPECT_EQ(cosine["cosine"], StudyJson(similarity.cosine_y));
  EXPECT_EQ(cosine["norm_x"], StudyJson(similarity.norm_x));
  EXPECT_EQ(cosine["norm_y"], StudyJson(similarity.norm_y));
  const StudyJson spectra = RunStudy("spectra", ReadRun(path), {});
  const std::vector<Spectrum> expected = WeightSpectra(model);
  ASSERT_EQ(spectra["groups"].size(), expected.size());
  for (size_t g = 0; g < expected.size(); ++g) {
    EXPECT_EQ(spectra["groups"][g]["name"], expected[g].name);
    EXPECT_EQ(spectra["groups"][g]["values"], StudyJson(expected[g].values));
  }
}

TEST_F(StudyTest, PruningNothingChangesNothing) {
  const std::string path = TrainRun("run", "1x1");
  StudyOptions options;
  options.percents = {0};
  const StudyJson study = RunStudy("pruning", ReadRun(path), options);
  EXPECT_EQ(study["pruned"], StudyJson({0}));
  EXPECT_EQ(study["loss"][0].get<double>(), Loss(Load(path), 0));
}

TEST_F(StudyTest, PruningSetsTheSmallestWeightsToZero) {
  const std::string path = TrainRun("run", "1x1");
  StudyOptions options;
  options.percents = {30, 0, 50};  // in any order
  const StudyJson study = RunStudy("pruning", ReadRun(path), options);
  for (size_t k = 0; k < 3; ++k) {
    const Model model = Load(path);
    std::vector<float*> weights;
    for (int i = 1; i <= 4; ++i) {
      for (int j = 0; j <= i; ++j) weights.push_back(model.tensors().alphas[i].f32() + j);
    }
    std::sort(weights.begin(), weights.end(),
              [](const float* a, const float* b) { return std::abs(*a) < std::abs(*b); });
    const int count = static_cast<int>(14 * options.percents[k] / 100);
    for (int n = 0; n < count; ++n) *weights[n] = 0;
    EXPECT_EQ(study["pruned"][k], count);
    EXPECT_EQ(study["loss"][k].get<double>(), Loss(model, 0));
    EXPECT_DOUBLE_EQ(study["perplexity"][k].get<double>(),
                     std::exp(study["loss"][k].get<double>()));
  }
}

TEST_F(StudyTest, PruningAllButTheDiagonalEqualsAModelWithThatMask) {
  const std::string path = TrainRun("run", "1x1");
  StudyOptions options;
  options.percents = {72};  // 10 of 14: all but the four near 1
  const StudyJson study = RunStudy("pruning", ReadRun(path), options);
  ASSERT_EQ(study["pruned"], StudyJson({10}));

  const Model trained = Load(path);
  ModelConfig config = trained.config();
  config.dwa = "mask:01/001/0001/00001";
  Model masked(config, DType::kF32, ModelUse::kInference);
  for (const Parameter& parameter : masked.table().all()) {
    const Tensor to = ParameterTable::View(parameter, masked.weights().data());
    const Parameter* source = trained.table().Find(parameter.name);
    ASSERT_NE(source, nullptr) << parameter.name;
    const Tensor from = ParameterTable::View(*source, trained.weights().data());
    // Of the averages the newest source, which stands last.
    std::copy(from.f32() + from.count() - to.count(), from.f32() + from.count(), to.f32());
  }
  masked.WeightsChanged();
  EXPECT_NEAR(study["loss"][0].get<double>(), Loss(masked, 0), 1e-6);
  EXPECT_GT(std::abs(study["loss"][0].get<double>() - Loss(trained, 0)), 1e-5);
}

TEST_F(StudyTest, WhatARunCannotHaveIsSaid) {
  const RunData plain = ReadRun(TrainRun("plain", "none")),
                silent = ReadRun(TrainRun("silent", "1x1", 1, 4, /*alphas_every=*/0));
  for (const char* study : {"weights", "evolution", "sources", "pruning"}) {
    EXPECT_FALSE(FindStudy(study)->available(plain)) << study;
    EXPECT_TRUE(Contains(ErrorOf([&] { RunStudy(study, plain, {}); }),
                         "plain: this model has no depth-weighted averages"))
        << study;
  }
  RunData none = silent;
  none.alphas.clear();
  EXPECT_FALSE(FindStudy("evolution")->available(none));
  EXPECT_TRUE(Contains(ErrorOf([&] { RunStudy("evolution", none, {}); }),
                       "no snapshots of the weights (alphas.jsonl); train with log.alphas_every"));
  RunData wrong = ReadRun(TrainRun("wrong", "1x1"));
  wrong.alphas[1].modules[3].pop_back();
  EXPECT_TRUE(Contains(ErrorOf([&] { RunStudy("evolution", wrong, {}); }),
                       "alphas.jsonl: step 2 has 3 weights after block 3, expected 4"));
  wrong.alphas[1].modules.erase(3);
  EXPECT_TRUE(Contains(ErrorOf([&] { RunStudy("evolution", wrong, {}); }),
                       "step 2 has 3 modules, expected 4"));
  RunData imported = plain;
  imported.options.clear();
  EXPECT_TRUE(Contains(ErrorOf([&] { RunStudy("cosine", imported, {}); }), "give --data DIR"));
}

TEST_F(StudyTest, StudiesPassTheirOwnCheckAndNothingElseDoes) {
  const RunData plain = ReadRun(TrainRun("run", "1x1")), mixed = ReadRun(TrainMixed("mixed"));
  for (const Study* kind : Studies()) {
    const std::string name = kind->name;
    const StudyJson study = kind->run(kind->available(plain) ? plain : mixed, {});
    EXPECT_EQ(ErrorOf([&] { CheckStudy(*kind, study, "file"); }), "no error") << name;
    StudyJson renamed = study;
    renamed["study"] = "other";
    EXPECT_TRUE(Contains(ErrorOf([&] { CheckStudy(*kind, renamed, "file"); }),
                         "file: not a study '" + name + "' ('study' has another name)"));
    for (const auto& [key, value] : study.items()) {
      // These describe, nothing depends on them.
      if (key == "pattern" || (key == "tokens" && name == "cosine")) continue;
      if (key == "depth" && name == "cosine") continue;
      StudyJson damaged = study;
      damaged.erase(key);
      EXPECT_TRUE(
          Contains(ErrorOf([&] { CheckStudy(*kind, damaged, "file"); }), "file: not a study"))
          << name << " without " << key;
      damaged = study;
      damaged[key] = "text";
      EXPECT_TRUE(
          Contains(ErrorOf([&] { CheckStudy(*kind, damaged, "file"); }), "file: not a study"))
          << name << " with a text for " << key;
      if (value.is_array() && key != "runs") {
        damaged[key] = StudyJson::array({StudyJson::object()});
        EXPECT_TRUE(
            Contains(ErrorOf([&] { CheckStudy(*kind, damaged, "file"); }), "file: not a study"))
            << name << " with an object in " << key;
      }
    }
  }
}

TEST_F(StudyTest, StudiesOfRunsWithMixers) {
  for (const char* mixer : {"dynamic", "attention"}) {
    const RunData run = ReadRun(TrainRun(mixer, "1x1", 1, 4, 2, mixer, "rv"));
    std::vector<std::string> names;
    for (const Study* kind : Studies()) {
      if (!kind->available(run)) continue;
      names.push_back(kind->name);
      const StudyJson study = kind->run(run, {});
      EXPECT_EQ(ErrorOf([&] { CheckStudy(*kind, study, "file"); }), "no error") << kind->name;
      EXPECT_FALSE(kind->sentences(study).empty()) << kind->name;
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"cosine", "mixing", "spectra"}));
    const StudyJson cosine = RunStudy("cosine", run, {});
    EXPECT_NEAR(cosine["cosine"][0].get<double>(), 1, 1e-6);
    EXPECT_NE(cosine["norm_x"][4], cosine["norm_y"][4]);  // the mixer has left the identity
  }
}

TEST_F(StudyTest, ChartsAreWellFormedAndHaveDifferentNames) {
  const RunData one = ReadRun(TrainRun("a-b", "1x1")), two = ReadRun(TrainRun("a+b", "1x1", 2));
  std::vector<std::string> ids;
  const RunData mixed = ReadRun(TrainMixed("mixed")), other = ReadRun(TrainMixed("mixed+", 2));
  for (const Study* kind : Studies()) {
    const RunData &a = kind->available(one) ? one : mixed, &b = kind->available(two) ? two : other;
    const std::vector<Chart> charts =
        kind->charts({{a.name, kind->run(a, {}), 0}, {b.name, kind->run(b, {}), 1}});
    EXPECT_FALSE(charts.empty());
    for (const Chart& chart : charts) {
      EXPECT_EQ(XmlProblem(DrawSvg(chart, true)), "");
      EXPECT_FALSE(ChartTitle(chart).empty());
      EXPECT_FALSE(ChartDescription(chart).empty());
      ids.push_back(ChartId(chart));
    }
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  EXPECT_EQ(FindStudy("other"), nullptr);
}

TEST(StudyCsv, HasALineForEachNumber) {
  const StudyJson weights = {{"study", "weights"},
                             {"runs", {"a"}},
                             {"depth", 1},
                             {"mean", {{nullptr, nullptr}, {0.5, 1.0}}},
                             {"standard_error", {{nullptr, nullptr}, {0.25, nullptr}}}};
  EXPECT_EQ(CsvOf(weights), "block,source,mean,standard_error\n1,0,0.5,0.25\n1,1,1,\n");
  const StudyJson pruning = {{"study", "pruning"},
                             {"percent", {0, 10}},
                             {"pruned", {0, 1}},
                             {"loss", {1.5, nullptr}},
                             {"perplexity", {4.5, 5.0}}};
  EXPECT_EQ(CsvOf(pruning), "percent,pruned,loss,perplexity\n0,0,1.5,4.5\n10,1,,5\n");
  const StudyJson cosine = {
      {"study", "cosine"}, {"cosine", {1, 0.5}}, {"norm_x", {2, 3}}, {"norm_y", {4, 5}}};
  EXPECT_EQ(CsvOf(cosine), "depth,cosine,norm_x,norm_y\n0,1,2,4\n1,0.5,3,5\n");
  const StudyJson evolution = {{"study", "evolution"},
                               {"depth", 1},
                               {"steps", {0, 5}},
                               {"modules", {{"1", {{0, 1}, {0.5, 1}}}}},
                               {"sources", {{"1", {0, 1}}}}};
  EXPECT_EQ(CsvOf(evolution), "step,block,source,weight\n0,1,0,0\n0,1,1,1\n5,1,0,0.5\n5,1,1,1\n");
}

// At a gate of 0 Y is X_i, however even the softmax.
TEST(StudySentences, MixingSaysWhatSharesLeaveOut) {
  StudyJson mixing = {{"study", "mixing"},
                      {"depth", 1},
                      {"tokens", 64},
                      {"mixer", "attention"},
                      {"mixer_norm", "none"},
                      {"streams",
                       {{{"stream", "r"},
                         {"mean", {{nullptr, nullptr}, {0.0, 0.0}}},
                         {"spread", {{nullptr, nullptr}, {0.0, 0.0}}},
                         {"entropy", {nullptr, std::log(2.0)}},
                         {"newest", {nullptr, 0.5}}}}}};
  EXPECT_EQ(
      SentencesOf(mixing),
      (std::vector<std::string>{
          "Mixer attention over the first 64 validation tokens.",
          "Y is the output of the newest block plus a weighted sum of what each block added. "
          "Shares and entropy are of this sum alone and leave out the output itself, whose weight "
          "is 1.",
          "Stream r: the newest source has 50 % of the weights on average, and the entropy of a "
          "module is 0.6931 nats (as even as over 2 sources), with weights that add up to 0 beside "
          "the 1 of the output itself; no weight differs between tokens."}));
  mixing["mixer"] = "dynamic";
  mixing["mixer_norm"] = "prepost";
  ASSERT_EQ(SentencesOf(mixing).size(), 3u);
  EXPECT_TRUE(Contains(SentencesOf(mixing)[1], "leave out the output itself"));
  mixing["mixer_norm"] = "none";
  EXPECT_EQ(SentencesOf(mixing).size(), 2u);
}

TEST(StudySentences, StateWhatTheNumbersShow) {
  const StudyJson weights = {{"study", "weights"},
                             {"runs", {"a"}},
                             {"depth", 3},
                             {"mean",
                              {{nullptr, nullptr, nullptr, nullptr},
                               {0.3, 1.0, nullptr, nullptr},
                               {0.2, -0.4, 0.8, nullptr},
                               {-0.1, 0.2, 0.0, 0.9}}},
                             {"standard_error", StudyJson::array()}};
  EXPECT_EQ(SentencesOf(weights),
            (std::vector<std::string>{
                "3 modules with 9 weights; the weight on a block's own output is 0.9 on average.",
                "Weights on older outputs have a mean magnitude of 0.2; 33 % of them are negative.",
                "The largest of them is -0.4, on X₁ after block 2.",
                "3 modules read the embedding X₀, with a weight of 0.1333 on average: 0.3 in the "
                "first third of the depth, -0.1 in the last."}));
  const StudyJson cosine = {
      {"study", "cosine"}, {"cosine", {1, 0.2, 0.4}}, {"norm_x", {1, 2, 3}}, {"norm_y", {1, 2, 4}}};
  EXPECT_EQ(
      SentencesOf(cosine)[0],
      "The cosine similarity with the embedding is lowest, 0.2, at depth 1; at the last, 2, it is "
      "0.4.");
  EXPECT_EQ(SentencesOf(cosine)[1],
            "The norm of what is passed on goes from 1 at the embedding to 4 at the end.");
  // 20 % is bearable, but 10 % is not: nothing beyond 5 % counts.
  const StudyJson pruning = {
      {"study", "pruning"},     {"tokens", 4096},       {"percent", {20, 0, 10, 5}},
      {"pruned", {4, 0, 2, 1}}, {"loss", {0, 0, 0, 0}}, {"perplexity", {10.0, 10.0, 11.0, 10.05}}};
  EXPECT_EQ(SentencesOf(pruning)[0],
            "Over the first 4,096 validation tokens, perplexity is 10 with 0 % of the weights "
            "pruned and 10 with 20 %.");
  EXPECT_EQ(
      SentencesOf(pruning)[1],
      "Of the shares tried, 5 % is the largest before perplexity has grown by more than 1 %.");
  const StudyJson spectra = {{"study", "spectra"},
                             {"groups", {{{"name", "g"}, {"matrices", 1}, {"values", {3, 1, 0}}}}}};
  EXPECT_EQ(SentencesOf(spectra)[0],
            "Singular values that hold 90 % of the squared norm: g 1 of 3.");
  const StudyJson sources = {{"study", "sources"},
                             {"depth", 1},
                             {"modules",
                              {{{"block", 1},
                                {"sources",
                                 {{{"source", 1}, {"weight", 1}, {"share", 0.75}},
                                  {{"source", 0}, {"weight", 1}, {"share", 0.25}}}}}}}};
  EXPECT_EQ(SentencesOf(sources),
            (std::vector<std::string>{
                "Older outputs have 25 % of the shares.",
                "Besides the newest output, X₀ contributes most in 1 of 1 module."}));
}

}  // namespace
}  // namespace denseformer

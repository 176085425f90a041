// denseformer search: which few weights of a trained model are worth keeping? Writes a mask file.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "analysis/mask_search.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "io/run_directory.h"
#include "train/evaluate.h"
#include "train/plan.h"
#include "train/train_data.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

struct SearchCall {
  std::string run, data, out;
  int64_t steps = 0;  // 0: a third of the run's
  double lr = 0;      // 0: half of the run's
  SearchOptions search;
};

// Those of the run, with steps and rate of the search.
TrainOptions OptionsOf(const SearchCall& call) {
  const std::string run = FindWholeRun(call.run);
  if (!FileExists(run + "/" + kOptionsFile)) {
    Throw(ErrorCode::kUsage, "search: {} has no {}; it must be a run of 'denseformer train'", run,
          kOptionsFile);
  }
  TrainOptions options = ReadStoredOptions(run);
  if (!call.data.empty()) options.data = call.data;
  options.steps = call.steps > 0 ? call.steps : std::max<int64_t>(options.steps / 3, 1);
  options.lr = call.lr > 0 ? call.lr : options.lr / 2;
  options.dwa_start = 0;
  return options;
}

// One line of digits per block, as --dwa FILE reads it.
std::string MaskText(const SearchCall& call, const TrainOptions& options,
                     const DepthPattern& pattern) {
  std::string rows = pattern.ToString();
  rows = rows.substr(rows.find(':') + 1);
  std::replace(rows.begin(), rows.end(), '/', '\n');
  return fmt::format("# {} weights of {}: denseformer search --method {} --steps {} --lr {}\n{}\n",
                     pattern.weight_count(), options.model.dwa, call.search.method, options.steps,
                     options.lr, rows);
}

// At most 20 points of the course, the last one among them.
std::vector<SearchPoint> Shown(const std::vector<SearchPoint>& course) {
  constexpr size_t kMost = 20;
  const size_t every = (course.size() + kMost - 1) / kMost;
  std::vector<SearchPoint> shown;
  for (size_t i = (course.size() - 1) % every; i < course.size(); i += every) {
    shown.push_back(course[i]);
  }
  return shown;
}

void PrintResult(const SearchCall& call, const TrainOptions& options, const SearchResult& result,
                 double before, double after) {
  Print("    step  weights  training loss\n");
  for (const SearchPoint& point : Shown(result.course)) {
    Print("{:8}  {:7}  {:13.4f}\n", point.step, point.weights, point.loss);
  }
  Print("\n{}\n", result.pattern.Picture());
  Print("weights          {} of {} ({})\n", result.pattern.weight_count(),
        DepthPattern::Parse(options.model.dwa, options.model.n_layer).weight_count(),
        options.model.dwa);
  Print("modules          {}\n", result.pattern.module_count());
  Print("validation loss  {:.4f} before, {:.4f} with the mask after {} steps\n", before, after,
        options.steps);
  Print("mask             {}\n", call.out);
}

void RunSearch(const SearchCall& call, const CommonOptions& common) {
  const TrainOptions options = OptionsOf(call);
  options.Validate();
  const std::filesystem::path parent = std::filesystem::path(call.out).parent_path();
  if (!parent.empty()) MakeOutputDirectory(parent.string());
  RequireWritable(call.out);
  RequireTrainingMemory(options);
  Model model = LoadModel(call.run, options.compute(), ModelUse::kTraining);
  const TrainData data(options.data, model.config().vocab_size);
  const TrainBatches batches(
      data.train, {model.config().seq_len, options.batch_size, static_cast<uint64_t>(options.seed),
                   ParseBatchOrder(options.order)});
  // The sample of the validation stream that the run's own validations read.
  const TrainBatches sample(data.validation,
                            {model.config().seq_len, options.batch_size, 0, BatchOrder::kRandom});
  CatchInterrupts();
  const auto loss = [&] {
    Activations activations(model, options.pass_sequences(), model.config().seq_len,
                            ModelUse::kInference);
    EvalOptions eval;
    eval.progress = [](double) {
      ThrowIfInterrupted("search");
      return true;
    };
    return EvaluateSample(model, sample, options.eval_batches, activations, eval).loss;
  };
  const double before = loss();
  const SearchResult result = SearchMask(
      model, batches, ReadStoredOptions(FindWholeRun(call.run)).steps, options, call.search);
  const double after = loss();
  WriteFileAtomic(call.out, MaskText(call, options, result.pattern));
  if (!common.json) return PrintResult(call, options, result, before, after);
  Json course = Json::array();
  for (const SearchPoint& point : Shown(result.course)) {
    course.push_back({{"step", point.step}, {"weights", point.weights}, {"loss", point.loss}});
  }
  PrintJson({{"run", call.run},
             {"method", call.search.method},
             {"steps", options.steps},
             {"lr", options.lr},
             {"weights", result.pattern.weight_count()},
             {"modules", result.pattern.module_count()},
             {"validation_loss_before", before},
             {"validation_loss", after},
             {"course", course},
             {"pattern", result.pattern.ToString()},
             {"mask", call.out}});
}

}  // namespace

void AddSearch(CLI::App& app, CommonOptions& common) {
  auto call = std::make_shared<SearchCall>();
  app.add_option("RUN", call->run, "Directory of a run with static weights, such as --dwa 1x1")
      ->required();
  app.add_option("--weights", call->search.weights, "Weights to keep, at most")
      ->required()
      ->check(WholeNumber(2));
  AddOutput(app, call->out, "Mask file to write, for 'denseformer train --dwa FILE'")
      ->required()
      ->check(FileToWrite());
  app.add_option("--method", call->search.method,
                 "penalty (train with an L1 penalty on the weights) or greedy (remove the least "
                 "useful ones in rounds, train in between)")
      ->check(OneOf(SearchMethods()))
      ->capture_default_str();
  app.add_option("--steps", call->steps, "Steps of training; default: a third of the run's")
      ->check(WholeNumber(1));
  app.add_option("--lr", call->lr, "Peak learning rate; default: half of the run's")
      ->check(Number(1e-12));
  app.add_option("--rounds", call->search.rounds, "Rounds of greedy")
      ->check(WholeNumber(1, 1000))
      ->capture_default_str();
  app.add_option("--data", call->data, "Directory with train.bin and val.bin; default: the run's");
  app.footer(
      "The run itself stays as it is. Compare the mask with a pattern of as many weights by\n"
      "training both from scratch (docs/mixers.md).\n"
      "Examples:\n"
      "  denseformer search runs/1x1 --weights 65 --output mask.txt\n"
      "  denseformer search runs/1x1 --weights 65 --method greedy --output mask.txt\n"
      "  denseformer train runs/mask --dwa mask.txt --data data");
  SetWork(app, common, call, [&common](const SearchCall& c) { RunSearch(c, common); });
}

}  // namespace denseformer

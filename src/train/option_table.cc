// The table of options, presets, and the checks of their values.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/config_fields.h"
#include "model/depth_forms.h"
#include "model/mixer_spec.h"
#include "tensor/precision.h"
#include "train/options.h"

namespace denseformer {
namespace {

constexpr double kHuge = 1e300;
constexpr int64_t kMostSteps = int64_t{1} << 40;

// What a preset trains with; the rest is the recipe of the paper.
struct PresetTraining {
  const char* name;
  int64_t steps;
  int batch_size, accumulate;
  double lr;
  int64_t eval_every, save_every;
};

constexpr PresetTraining kPresetTraining[] = {
    {"paper-48", 40000, 400, 50, 1e-3, 200, 500},  //
    {"paper-64", 40000, 400, 50, 1e-3, 200, 500},  //
    {"paper-72", 40000, 400, 50, 1e-3, 200, 500},  //
    {"paper-84", 40000, 400, 50, 1e-3, 200, 500},  //
    {"paper-90", 40000, 400, 50, 1e-3, 200, 500},  //
    {"small", 2000, 16, 1, 1e-3, 100, 250},        //
    {"tiny", 1000, 8, 1, 3e-3, 100, 500},          //
    {"micro", 1000, 8, 1, 7.5e-3, 100, 500},       //
    {"test", 20, 4, 1, 1e-2, 10, 10},              //
};

std::string Number(double value) {
  std::string text = fmt::format("{}", value);
  // A TOML number without point or exponent is an integer; both are accepted, this one is clearer.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

bool ParseBool(std::string_view key, std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  Throw(ErrorCode::kUsage, "{}: got '{}', expected true or false", key, Printable(text));
}

// Collects the rows; `Field` functions give the member of the options.
class TableBuilder {
 public:
  enum Effect { kCourse, kFree };

  explicit TableBuilder(std::vector<OptionRow>& rows) : rows_(rows) {}

  template <class T, class Field>
  void Integer(const std::string& key, const std::string& flag, Field field, T low, T high,
               Effect effect, const std::string& help) {
    Add(
        key, flag, "integer", effect, help,
        [field](TrainOptions o) { return std::to_string(field(o)); },
        [field, key, low, high](TrainOptions& o, std::string_view text) {
          field(o) = static_cast<T>(ParseInt(key, text, low, high));
        });
  }

  template <class Field>
  void Real(const std::string& key, const std::string& flag, Field field, double low, double high,
            Effect effect, const std::string& help) {
    Add(
        key, flag, "number", effect, help, [field](TrainOptions o) { return Number(field(o)); },
        [field, key, low, high](TrainOptions& o, std::string_view text) {
          field(o) = ParseDouble(key, text, low, high);
        });
  }

  template <class Field>
  void Bool(const std::string& key, const std::string& flag, Field field, Effect effect,
            const std::string& help) {
    Add(
        key, flag, "true/false", effect, help,
        [field](TrainOptions o) { return std::string(field(o) ? "true" : "false"); },
        [field, key](TrainOptions& o, std::string_view text) { field(o) = ParseBool(key, text); });
  }

  // One of `choices`, or any text where there are none.
  template <class Field>
  void Text(const std::string& key, const std::string& flag, Field field,
            const std::vector<std::string>& choices, Effect effect, const std::string& help) {
    Add(
        key, flag, "text", effect, help, [field](TrainOptions o) { return TomlText(field(o)); },
        [field, key, choices](TrainOptions& o, std::string_view text) {
          if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32; })) {
            Throw(ErrorCode::kUsage, "{}: control characters are not allowed", key);
          }
          if (!choices.empty() && std::count(choices.begin(), choices.end(), text) == 0) {
            Throw(ErrorCode::kUsage, "{}: got '{}', expected one of {}{}", key, text,
                  Join(choices, ", "), DidYouMean(text, choices));
          }
          field(o) = std::string(text);
        });
  }

  // The fields of ModelConfig.
  void Model() {
    const ModelConfig names;
    VisitFields(names, [this](const std::string& name, const auto& value, const char* help) {
      using T = std::decay_t<decltype(value)>;
      const auto field = [name](TrainOptions& o) -> T& {
        T* found = nullptr;
        VisitFields(o.model, [&](const std::string& other, auto& candidate, const char*) {
          if constexpr (std::is_same_v<std::decay_t<decltype(candidate)>, T>) {
            if (other == name) found = &candidate;
          }
        });
        DF_CHECK(found != nullptr);
        return *found;
      };
      std::string flag = "--" + name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      const std::string key = "model." + name;
      if constexpr (std::is_same_v<T, bool>) {
        Bool(key, flag, field, kCourse, help);
      } else if constexpr (std::is_same_v<T, int>) {
        Integer<int>(key, flag, field, 1, 1 << 24, kCourse, help);
      } else {
        Text(key, flag, field, {}, kCourse,
             name == "dwa" ? "depth pattern: " + DepthFormList() : std::string(help));
      }
    });
  }

 private:
  void Add(const std::string& key, const std::string& flag, const std::string& type, Effect effect,
           const std::string& help, std::function<std::string(const TrainOptions&)> get,
           std::function<void(TrainOptions&, std::string_view)> set) {
    rows_.push_back({key, flag, type, help, effect == kCourse, std::move(get), std::move(set)});
  }

  std::vector<OptionRow>& rows_;
};

#define FIELD(name) \
  [](TrainOptions & o) -> auto& { return o.name; }

void AddTraining(TableBuilder& table) {
  const auto kCourse = TableBuilder::kCourse, kFree = TableBuilder::kFree;
  table.Text("data.path", "--data", FIELD(data), {}, kFree,
             "directory with train.bin and val.bin (a resumed run checks that they are the same)");
  table.Text("data.order", "--order", FIELD(order), {"shuffled", "random"}, kCourse,
             "order of the windows of the stream: shuffled (each once per epoch), or random");
  table.Text("train.init", "--init", FIELD(init), {}, kCourse,
             "start from the weights of a run, a checkpoint, an import or an export; they "
             "determine the model; --dwa may differ where the result computes the same at first");
  table.Integer<int64_t>("train.steps", "--steps", FIELD(steps), 1, kMostSteps, kCourse,
                         "optimizer steps");
  table.Integer<int>("train.batch_size", "--batch-size", FIELD(batch_size), 1, 1 << 20, kCourse,
                     "sequences per step");
  table.Integer<int>("train.accumulate", "--accumulate", FIELD(accumulate), 1, 1 << 20, kCourse,
                     "passes that a step's batch is split into, to save memory; must divide it");
  table.Real("train.dropout", "--dropout", FIELD(dropout), 0, 0.999, kCourse,
             "dropout on the embedding, both branches of a block and the attention weights");
  table.Integer<int64_t>("train.dwa_start", "--dwa-start", FIELD(dwa_start), 0, kMostSteps, kCourse,
                         "steps during which the DWA weights stay at the identity");
  table.Integer<int64_t>("train.seed", "--seed", FIELD(seed), 0, INT64_MAX, kCourse,
                         "seed of the initial weights, the batches and dropout");
  table.Text("train.precision", "--precision", FIELD(precision), PrecisionNames(), kCourse,
             "precision of the GEMMs: fp32, bf16, or auto (bf16 where this CPU has it fast)");
  table.Bool("train.recompute", "--recompute", FIELD(recompute), kFree,
             "compute the activations of a block again in the backward pass: less memory, the same "
             "results, more time");
}

void AddOptimizer(TableBuilder& table) {
  const auto kCourse = TableBuilder::kCourse, kFree = TableBuilder::kFree;
  table.Real("optimizer.lr", "--lr", FIELD(lr), 0, 1e6, kCourse, "peak learning rate");
  table.Text("optimizer.schedule", "--schedule", FIELD(schedule), ScheduleNames(), kCourse,
             "cosine (one cycle), linear, or constant after the warm-up");
  table.Real("optimizer.warmup", "--warmup", FIELD(warmup), 0, 1, kCourse,
             "share of the steps until the peak");
  table.Real("optimizer.lr_start", "--lr-start", FIELD(lr_start), 0, 1, kCourse,
             "rate of the first step, as a share of the peak");
  table.Real("optimizer.lr_end", "--lr-end", FIELD(lr_end), 0, 1, kCourse,
             "rate of the last step, as a share of the peak");
  table.Real("optimizer.beta1", "--beta1", FIELD(beta1), 0, 0.9999999, kCourse,
             "decay of AdamW's first moment");
  table.Real("optimizer.beta2", "--beta2", FIELD(beta2), 0, 0.9999999, kCourse,
             "decay of AdamW's second moment");
  table.Real("optimizer.epsilon", "--epsilon", FIELD(epsilon), 1e-30, 1, kCourse,
             "added to AdamW's denominator");
  table.Real("optimizer.weight_decay", "--weight-decay", FIELD(weight_decay), 0, 1e6, kCourse,
             "decoupled decay of all matrices but the embedding, of DWA weights and of gains");
  table.Bool("optimizer.decay_dwa", "--decay-dwa", FIELD(decay_dwa), kCourse,
             "whether the DWA weights decay");
  table.Bool("optimizer.decay_gains", "--decay-gains", FIELD(decay_gains), kCourse,
             "whether the gains decay");
  table.Real("optimizer.mixer_lr", "--mixer-lr", FIELD(mixer_lr), 0, 1e6, kCourse,
             "factor of the learning rate for the weights of depth mixers, static ones included");
  table.Real("optimizer.mixer_weight_decay", "--mixer-weight-decay", FIELD(mixer_weight_decay), 0,
             1e6, kCourse, "decoupled decay of the parameters of mixers that are not static");
  table.Real("optimizer.clip", "--clip", FIELD(clip), 0, kHuge, kCourse,
             "largest norm of the whole gradient; 0 does not clip");
  table.Integer<int>("optimizer.max_bad_steps", "--max-bad-steps", FIELD(max_bad_steps), 1, 1 << 30,
                     kFree, "consecutive steps with a non-finite loss or gradient that end a run");
}

void AddRecords(TableBuilder& table) {
  const auto kCourse = TableBuilder::kCourse, kFree = TableBuilder::kFree;
  table.Integer<int64_t>("eval.every", "--eval-every", FIELD(eval_every), 0, kMostSteps, kFree,
                         "steps between validations on a fixed sample; 0: none");
  table.Integer<int>("eval.batches", "--eval-batches", FIELD(eval_batches), 1, 1 << 20, kCourse,
                     "batches of this sample");
  table.Bool("eval.final", "--eval-final", FIELD(eval_final), kFree,
             "validate on the whole validation stream at the end");
  table.Integer<int64_t>("save.every", "--save-every", FIELD(save_every), 0, kMostSteps, kFree,
                         "steps between checkpoints; 0: only at the end and when stopped");
  table.Integer<int>("save.keep", "--keep", FIELD(save_keep), 1, 1 << 20, kFree,
                     "checkpoints to keep, the newest ones");
  table.Bool("save.best", "--save-best", FIELD(save_best), kFree,
             "also keep the checkpoint with the best validation loss");
  table.Integer<int64_t>("log.every", "--log-every", FIELD(log_every), 1, kMostSteps, kFree,
                         "steps between lines of metrics.jsonl");
  table.Bool("log.tensorboard", "--log-tensorboard", FIELD(log_tensorboard), kFree,
             "also write TensorBoard events");
  table.Integer<int64_t>("log.alphas_every", "--log-alphas-every", FIELD(log_alphas_every), 0,
                         kMostSteps, kFree,
                         "steps between snapshots of the DWA weights; 0: fifty over the run");
  table.Text("log.alphas_at", "--log-alphas-at", FIELD(log_alphas_at), {}, kFree,
             "additional steps for snapshots, separated by commas");
}

#undef FIELD

std::vector<OptionRow> MakeTable() {
  std::vector<OptionRow> rows;
  TableBuilder table(rows);
  table.Model();
  AddTraining(table);
  AddOptimizer(table);
  AddRecords(table);
  return rows;
}

}  // namespace

std::string TomlText(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string OptionRow::ShortKey() const {
  std::string name = flag.substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const std::vector<OptionRow>& TrainOptionTable() {
  static const std::vector<OptionRow> table = MakeTable();
  return table;
}

TrainOptions PresetOptions(std::string_view preset) {
  TrainOptions options;
  options.preset = preset;
  options.model = ModelConfig::Preset(preset);
  for (const PresetTraining& row : kPresetTraining) {
    if (preset != row.name) continue;
    options.steps = row.steps;
    options.batch_size = row.batch_size;
    options.accumulate = row.accumulate;
    options.lr = row.lr;
    options.eval_every = row.eval_every;
    options.save_every = row.save_every;
    return options;
  }
  Throw(ErrorCode::kInternal, "preset {} has no row in kPresetTraining", preset);
}

Schedule TrainOptions::MakeSchedule() const {
  return {ParseSchedule(schedule), lr, warmup, lr_start, lr_end, steps};
}

std::vector<int64_t> TrainOptions::AlphaSteps() const {
  constexpr int64_t kSnapshots = 50;
  std::set<int64_t> at = {0, steps};
  const int64_t every =
      log_alphas_every > 0 ? log_alphas_every : std::max<int64_t>(1, steps / kSnapshots);
  for (int64_t step = every; step < steps; step += every) at.insert(step);
  for (const std::string& part : Split(log_alphas_at, ',')) {
    const std::string_view trimmed = Trim(part);
    if (!trimmed.empty()) at.insert(ParseInt("log.alphas_at", trimmed, 0, kMostSteps));
  }
  return {at.begin(), at.end()};
}

void TrainOptions::Validate() const {
  model.Validate();
  if (batch_size % accumulate != 0) {
    Throw(ErrorCode::kUsage,
          "train.accumulate: got {}, expected a divisor of train.batch_size = {}", accumulate,
          batch_size);
  }
  if (dwa_start > 0 && !ParseMixer(model).form->identity) {
    Throw(ErrorCode::kUsage,
          "train.dwa_start: got {}, but mixer {} has no identity to stay at; expected 0", dwa_start,
          model.mixer);
  }
  if (steps < log_alphas_every && log_alphas_every > 0 && model.dwa != "none") {
    Throw(ErrorCode::kUsage, "log.alphas_every: got {}, expected at most train.steps = {}",
          log_alphas_every, steps);
  }
  AlphaSteps();
}

}  // namespace denseformer

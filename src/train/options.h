// The options of a training run, listed once: configuration files, --set, flags, the printed and
// stored configuration and docs/options.md all come from TrainOptionTable().
//
// Precedence: preset < TOML file < --set < flags.
#ifndef DENSEFORMER_TRAIN_OPTIONS_H_
#define DENSEFORMER_TRAIN_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "denseformer/config.h"
#include "tensor/dtype.h"
#include "train/schedule.h"

namespace denseformer {

// What each means stands in the table (options.cc).
struct TrainOptions {
  std::string preset = "tiny";
  ModelConfig model = ModelConfig::Preset("tiny");

  std::string data;
  std::string order = "shuffled";

  std::string init;
  int64_t steps = 1000;
  int batch_size = 32;
  int accumulate = 1;
  double dropout = 0;
  int64_t dwa_start = 0;
  int64_t seed = 1;
  std::string precision = "auto";
  bool recompute = false;

  double lr = 1e-3;
  std::string schedule = "cosine";
  double warmup = 0.05;
  double lr_start = 0.01;
  double lr_end = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool decay_dwa = true;
  bool decay_gains = true;
  double mixer_lr = 1;
  double mixer_weight_decay = 0;
  double clip = 0;
  int max_bad_steps = 5;

  int64_t eval_every = 200;
  int eval_batches = 24;
  bool eval_final = true;

  int64_t save_every = 500;
  int save_keep = 2;
  bool save_best = true;

  int64_t log_every = 1;
  bool log_tensorboard = true;
  int64_t log_alphas_every = 0;
  std::string log_alphas_at;

  bool operator==(const TrainOptions&) const = default;

  // The precision, once resolved, as a type.
  DType compute() const { return precision == "bf16" ? DType::kBF16 : DType::kF32; }
  // Sequences of one pass.
  int64_t pass_sequences() const { return batch_size / accumulate; }
  Schedule MakeSchedule() const;
  // The steps of log_alphas_every and log_alphas_at together, sorted.
  std::vector<int64_t> AlphaSteps() const;
  // Throws kUsage where options contradict each other.
  void Validate() const;
};

// The values of a preset: its model, and steps and batches that suit it.
TrainOptions PresetOptions(std::string_view preset);

struct OptionRow {
  std::string key;   // "optimizer.lr"
  std::string flag;  // "--lr"
  std::string type;  // "integer", "number", "true/false", "text"
  std::string help;
  // A different value makes a different run: refused on resume unless forced by name.
  bool course;
  // The value as TOML writes it.
  std::function<std::string(const TrainOptions&)> get;
  // From the text of a flag (strings without quotes); throws kUsage that names the key.
  std::function<void(TrainOptions&, std::string_view)> set;

  // The key without a section: "lr", "eval_every"; accepted wherever the key is.
  std::string ShortKey() const;
};

const std::vector<OptionRow>& TrainOptionTable();

// The row of a key, long or short; throws kUsage with the nearest key. `where` begins the message.
const OptionRow& FindOption(std::string_view where, std::string_view key);

using Assignments = std::vector<std::pair<std::string, std::string>>;

// Key and value of every entry of a TOML text; `name` stands in messages. Throws kInvalid for wrong
// syntax with the line, for a value of the wrong type and for a key given twice, kUsage for an
// unknown key. "preset" may stand at the top.
Assignments ParseToml(std::string_view text, std::string_view name);

// "key=value" of a --set.
std::pair<std::string, std::string> ParseSet(std::string_view text);

// A string as TOML writes it.
std::string TomlText(const std::string& text);

void Assign(TrainOptions& options, const Assignments& assignments, std::string_view where);

// All options as a TOML file that gives the same options again. Where not empty, `data_from_run` is
// noted in it (stored_options.h); a configuration file may have it, without effect.
std::string ToToml(const TrainOptions& options, const std::string& data_from_run = "");

// What a call gives.
struct OptionSources {
  std::string preset;     // "" where not given
  std::string toml;       // the text of the file
  std::string toml_name;  // its path
  Assignments sets;       // --set
  Assignments flags;      // by key
  bool operator==(const OptionSources&) const = default;
};

// Options of a new run. Precision "auto" becomes what this CPU is fast at. With train.init the
// model is that of the weights instead of the preset's, and what the sources say about it must suit
// them.
TrainOptions ResolveOptions(const OptionSources& sources);

// The options that ToToml stored: nothing in them is resolved again, neither files nor the CPU.
TrainOptions ParseStoredOptions(std::string_view toml, std::string_view name,
                                std::string* data_from_run = nullptr);

// Options of a resumed run: `stored` changed by the sources. A changed option that decides the
// course is refused (kUsage, naming all of them) unless `forced` names it.
TrainOptions ResolveResumed(const TrainOptions& stored, const OptionSources& sources,
                            const std::vector<std::string>& forced);

// docs/options.md.
std::string OptionsDocument();

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_OPTIONS_H_

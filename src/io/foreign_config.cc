// The configuration of a foreign model: from its JSON, from its tensors, from the call.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/foreign_weights.h"
#include "model/config_fields.h"
#include "model/mask_file.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

struct KeyRow {
  const char* field;
  std::vector<const char*> keys;  // of other programs, first one found counts
};

const std::vector<KeyRow>& Keys() {
  static const std::vector<KeyRow> rows = {
      {"n_layer", {"n_layer", "num_hidden_layers"}},
      {"n_head", {"n_head", "num_attention_heads"}},
      {"n_embd", {"n_embd", "hidden_size"}},
      {"vocab_size", {"vocab_size"}},
      {"seq_len",
       {"seq_len", "sequence_length", "block_size", "n_positions", "max_position_embeddings"}},
      {"bias", {"bias"}},
      {"gains", {"gains"}},
      {"dwa", {"dwa"}},
      {"mixer", {"mixer"}},
      {"streams", {"streams"}},
      {"mixer_norm", {"mixer_norm"}},
  };
  return rows;
}

// The values by field, as text.
using Values = std::map<std::string, std::string>;

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The average after the last block reads every `period`-th output.
std::string FinalPattern(const std::string& period) {
  return period == "1" ? "final" : "final:" + period;
}

// Arguments of the authors' script that make another model than this program's.
struct FixedArgument {
  const char* key;
  Json value;
  const char* what;  // the program has
};

void CheckAuthorsArguments(const Json& args, const std::string& where) {
  const FixedArgument fixed[] = {
      {"positional_encoder", "rotary", "rotary positions only"},
      {"attention_window_length", nullptr, "attention to the whole sequence only"},
  };
  for (const FixedArgument& argument : fixed) {
    const auto found = args.find(argument.key);
    if (found == args.end() || *found == argument.value) continue;
    Throw(ErrorCode::kUnsupported, "{}: {} is {}, expected {}; this program has {}", where,
          argument.key, found->dump(), argument.value.dump(), argument.what);
  }
}

// What the authors' script calls a model.
void AddAuthorsModel(const Json& args, const std::string& where, Values& values) {
  const auto model = args.find("model");
  if (model == args.end() || !model->is_string()) return;
  const std::string name = *model;
  auto number = [&](const char* key) {
    const auto found = args.find(key);
    if (found == args.end() || !found->is_number_integer()) {
      Throw(ErrorCode::kInvalid, "{}: model '{}' needs the whole number '{}'", where, name, key);
    }
    return found->dump();
  };
  CheckAuthorsArguments(args, where);
  values["gains"] = "false";
  if (name == "base") {
    values["dwa"] = "none";
  } else if (name == "denseformer") {
    values["dwa"] =
        fmt::format("grouped:{}x{}", number("dilation_factor"), number("increase_T_every"));
  } else if (name == "connecttolast") {
    values["dwa"] = FinalPattern(number("increase_T_every"));
  } else if (name == "basewgains") {
    values["dwa"] = "none";
    values["gains"] = "true";
  } else {
    Throw(ErrorCode::kUnsupported,
          "{}: model '{}', expected base, denseformer, connecttolast or basewgains", where, name);
  }
}

Values FromJson(const ForeignWeights& weights) {
  Values values;
  if (weights.config.is_null()) return values;
  const std::string& where = weights.config_path;
  if (!weights.config.is_object()) Throw(ErrorCode::kInvalid, "{}: not a JSON object", where);
  const auto args = weights.config.find("args");
  const Json& json = args != weights.config.end() && args->is_object() ? *args : weights.config;
  if (json.value("model_type", Json()) == "gpt2") {
    Throw(ErrorCode::kUnsupported,
          "{}: GPT-2 has learned positions and another activation than this program's model "
          "(rotary positions, exact GELU); it cannot be imported",
          where);
  }
  for (const KeyRow& row : Keys()) {
    for (const char* key : row.keys) {
      const auto found = json.find(key);
      if (found == json.end() || found->is_null()) continue;
      values[row.field] = TextOf(*found);
      break;
    }
  }
  AddAuthorsModel(json, where, values);
  return values;
}

// What the tensors show, for values that the JSON does not give.
void AddFromTensors(const ForeignWeights& weights, const ForeignNaming& naming, Values& values) {
  const auto wte = weights.tensors.find(kEmbeddingName);
  if (wte == weights.tensors.end() || wte->second.shape.size() != 2) {
    Throw(ErrorCode::kInvalid, "{}: no tensor '{}' of two dimensions: not a model of this kind",
          weights.path, kEmbeddingName);
  }
  values.emplace("vocab_size", fmt::format("{}", wte->second.shape[0]));
  values.emplace("n_embd", fmt::format("{}", wte->second.shape[1]));
  values.emplace("n_layer", fmt::format("{}", CountBlocks(weights.names(), naming)));
  bool bias = false, gains = false;
  for (const auto& [name, tensor] : weights.tensors) {
    bias = bias || (name.ends_with(".bias") && !IsMaskName(name));
    gains = gains || name.ends_with(".gain_attn");
  }
  values.emplace("bias", bias ? "true" : "false");
  values.emplace("gains", gains ? "true" : "false");
}

// Whether the averages of `spec` have just the tensors that the file has.
bool PatternFits(const ForeignWeights& weights, const ForeignNaming& naming,
                 const ModelConfig& config, const std::string& spec) {
  const DepthPattern pattern = DepthPattern::Parse(spec, config.n_layer);
  int modules = 0;
  for (int i = 1; i <= config.n_layer; ++i) {
    if (!pattern.has_module(i)) continue;
    ++modules;
    Parameter parameter;
    parameter.group = ParameterGroup::kDwa;
    parameter.block = i;
    parameter.shape = Shape{1, static_cast<int64_t>(pattern.sources(i).size())};
    const auto found = weights.tensors.find(PiecesOf(parameter, naming)[0].name);
    if (found == weights.tensors.end() || found->second.count() != parameter.count()) return false;
  }
  const std::string prefix = naming.modules == ModuleNames::kGrouped ? "weights." : "dwa_modules.";
  return modules == std::count_if(weights.tensors.begin(), weights.tensors.end(),
                                  [&](const auto& t) { return t.first.starts_with(prefix); });
}

// The patterns that the tensors of the averages allow, each once: several specs may mean the same.
std::vector<std::string> FittingPatterns(const ForeignWeights& weights, const ForeignNaming& naming,
                                         const ModelConfig& config) {
  const bool grouped = naming.modules == ModuleNames::kGrouped;
  const int d = config.n_layer;
  std::vector<std::string> specs;
  for (int p = 1; p <= d; ++p) {
    if (grouped && p != naming.period) continue;
    for (int k = 1; k <= d; ++k) {
      specs.push_back(fmt::format("{}{}x{}", grouped ? "grouped:" : "", k, p));
    }
  }
  for (int k = 1; k <= d && !grouped; ++k) specs.push_back(fmt::format("last:{}", k));
  std::vector<std::string> fitting;
  std::vector<DepthPattern> patterns;
  for (const std::string& spec : specs) {
    if (!PatternFits(weights, naming, config, spec)) continue;
    DepthPattern pattern = DepthPattern::Parse(spec, d);
    if (std::find(patterns.begin(), patterns.end(), pattern) != patterns.end()) continue;
    patterns.push_back(std::move(pattern));
    fitting.push_back(spec);
  }
  return fitting;
}

// The pattern that the tensors of the averages show. They give the number of sources, not which
// ones: where several patterns have these numbers the caller must say.
std::string PatternFromTensors(const ForeignWeights& weights, const ForeignNaming& naming,
                               const ModelConfig& config) {
  if (naming.modules == ModuleNames::kNone) return "none";
  if (naming.modules == ModuleNames::kFinal) return FinalPattern(std::to_string(naming.period));
  const std::vector<std::string> fitting = FittingPatterns(weights, naming, config);
  if (fitting.size() == 1) return fitting[0];
  Throw(ErrorCode::kInvalid,
        "{}: the depth pattern cannot be told from the averages{}; give it by --dwa PATTERN",
        weights.path, fitting.empty() ? "" : fmt::format(", which fit {}", Join(fitting, ", ")));
}

void Assign(const std::string& what, const std::string& text, int& field) {
  field = static_cast<int>(ParseInt(what, text, 0, std::numeric_limits<int>::max()));
}
void Assign(const std::string& what, const std::string& text, bool& field) {
  if (text != "true" && text != "false") {
    Throw(ErrorCode::kUsage, "{}: got '{}', expected true or false", what, text);
  }
  field = text == "true";
}
void Assign(const std::string&, const std::string& text, std::string& field) { field = text; }

void AddSets(const std::vector<std::string>& sets, Values& values) {
  std::vector<std::string> known;
  for (const KeyRow& row : Keys()) known.emplace_back(row.field);
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    std::string key = set.substr(0, equals);
    if (key.starts_with("model.")) key = key.substr(6);
    if (equals == std::string::npos || std::find(known.begin(), known.end(), key) == known.end()) {
      Throw(ErrorCode::kUsage, "--set {}: expected KEY=VALUE with a key of {}{}", set,
            Join(known, ", "), DidYouMean(key, known));
    }
    values[key] = set.substr(equals + 1);
  }
}

}  // namespace

ModelConfig ForeignConfig(const ForeignWeights& weights, const ForeignNaming& naming,
                          const std::vector<std::string>& sets, const std::string& dwa) {
  Values values = FromJson(weights);
  const std::string stored_dwa = values.count("dwa") > 0 ? values["dwa"] : "";
  AddSets(sets, values);
  AddFromTensors(weights, naming, values);
  if (!dwa.empty()) values["dwa"] = dwa;
  ModelConfig config;
  VisitFields(config, [&](const char* name, auto& field, const char*) {
    const auto found = values.find(name);
    if (found != values.end()) {
      Assign(fmt::format("import: {}", name), found->second, field);
    } else if (std::string_view(name) != "dwa" && !MayBeMissing(name)) {
      Throw(ErrorCode::kInvalid,
            "import: {} is not in {}; give it by --set {}=VALUE or --config FILE", name,
            weights.config_path.empty() ? "the file, and there is no summary.json or config.json"
                                        : weights.config_path,
            name);
    }
  });
  if (values.count("dwa") == 0) config.dwa = PatternFromTensors(weights, naming, config);
  if (config.dwa != stored_dwa) config.dwa = ResolveDepthPattern(config.dwa, config.n_layer);
  config.Validate();
  return config;
}

}  // namespace denseformer

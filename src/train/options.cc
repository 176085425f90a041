#include "train/options.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/toml.h"
#include "denseformer/depth_pattern.h"
#include "model/mask_file.h"
#include "tensor/precision.h"
#include "train/init.h"

namespace denseformer {
namespace {

// Keys of a file that are no options.
constexpr const char* kPreset = "preset";
constexpr const char* kDataFromRun = "data_from_run";

std::string SectionOf(const std::string& key) { return key.substr(0, key.find('.')); }

// The text of a TOML value as a flag would have it, if the type is that of the row.
std::string ValueText(const OptionRow& row, const toml::node& node, std::string_view where) {
  if (const auto* value = node.as_boolean()) {
    if (row.type == "true/false") return value->get() ? "true" : "false";
  } else if (const auto* value = node.as_integer()) {
    if (row.type == "integer" || row.type == "number") return std::to_string(value->get());
  } else if (const auto* value = node.as_floating_point()) {
    if (row.type == "number") return fmt::format("{}", value->get());
  } else if (const auto* value = node.as_string()) {
    if (row.type == "text") return value->get();
  }
  std::ostringstream type;
  type << node.type();
  Throw(ErrorCode::kInvalid, "{}: {} is of type {}, expected {}", where, row.key, type.str(),
        row.type == "text" ? "string" : row.type);
}

// Reads `table` whose keys stand behind `prefix`.
void Flatten(const toml::table& table, const std::string& prefix, const std::string& name,
             Assignments& assignments) {
  for (const auto& [toml_key, node] : table) {
    const std::string key = prefix + std::string(toml_key.str());
    const std::string where = fmt::format("{}:{}", name, node.source().begin.line);
    if (const toml::table* inner = node.as_table(); inner != nullptr && prefix.empty()) {
      Flatten(*inner, key + ".", name, assignments);
      continue;
    }
    if (key == kPreset || key == kDataFromRun) {
      if (!node.is_string()) {
        Throw(ErrorCode::kInvalid, "{}: {} must be a string", where, key);
      }
      assignments.emplace_back(key, node.as_string()->get());
      continue;
    }
    const OptionRow& row = FindOption(where, key);
    const auto same = [&row](const auto& other) { return other.first == row.key; };
    if (std::any_of(assignments.begin(), assignments.end(), same)) {
      Throw(ErrorCode::kInvalid, "{}: {} is given twice", where, row.key);
    }
    assignments.emplace_back(row.key, ValueText(row, node, where));
  }
}

// Takes what is no option out of the assignments of a file; "" where it is not there.
std::string Take(Assignments& assignments, std::string_view key) {
  std::string value;
  std::erase_if(assignments, [&](const auto& assignment) {
    if (assignment.first != key) return false;
    value = assignment.second;
    return true;
  });
  return value;
}

// The value that the sources give an option; none where they do not.
std::optional<std::string> Given(const Assignments& file, const OptionSources& sources,
                                 std::string_view key) {
  std::optional<std::string> value;
  for (const Assignments* assignments : {&file, &sources.sets, &sources.flags}) {
    for (const auto& [name, text] : *assignments) {
      if (FindOption("", name).key == key) value = text;
    }
  }
  return value;
}

void AssignAll(TrainOptions& options, const Assignments& file, const OptionSources& sources) {
  Assign(options, file, sources.toml_name);
  Assign(options, sources.sets, "--set");
  Assign(options, sources.flags, "");
  // What the run stored is a spec already: it is not looked up among the files of the directory
  // that the program runs in.
  if (Given(file, sources, "model.dwa")) {
    options.model.dwa = ResolveDepthPattern(options.model.dwa, options.model.n_layer);
  }
  if (!options.init.empty()) {
    options.init = std::filesystem::absolute(options.init).lexically_normal().string();
  }
  options.precision = DTypeName(ComputeType(ParsePrecision(options.precision)));
  options.Validate();
}

}  // namespace

const OptionRow& FindOption(std::string_view where, std::string_view key) {
  std::vector<std::string> known;
  for (const OptionRow& row : TrainOptionTable()) {
    if (key == row.key || key == row.ShortKey()) return row;
    known.push_back(row.key);
    known.push_back(row.ShortKey());
  }
  std::string hint = DidYouMean(key, known);
  // The right name in the wrong section.
  const std::string_view name = key.substr(key.rfind('.') + 1);
  for (const OptionRow& row : TrainOptionTable()) {
    if (name != std::string_view(row.key).substr(row.key.find('.') + 1)) continue;
    hint = fmt::format(" (did you mean '{}'?)", row.key);
    break;
  }
  Throw(ErrorCode::kUsage, "{}: unknown key '{}'{}", where, Printable(key), hint);
}

Assignments ParseToml(std::string_view text, std::string_view name) {
  Assignments assignments;
  Flatten(ParseTomlTable(text, name), "", std::string(name), assignments);
  return assignments;
}

std::pair<std::string, std::string> ParseSet(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    Throw(ErrorCode::kUsage, "--set: got '{}', expected key=value", text);
  }
  const std::string_view key = Trim(text.substr(0, equals));
  return {FindOption("--set", key).key, std::string(Trim(text.substr(equals + 1)))};
}

void Assign(TrainOptions& options, const Assignments& assignments, std::string_view where) {
  for (const auto& [key, value] : assignments) {
    FindOption(where, key).set(options, value);
  }
}

std::string ToToml(const TrainOptions& options, const std::string& data_from_run) {
  std::string text = fmt::format("{} = {}\n", kPreset, TomlText(options.preset));
  if (!data_from_run.empty()) {
    text += fmt::format("{} = {}\n", kDataFromRun, TomlText(data_from_run));
  }
  std::string section;
  for (const OptionRow& row : TrainOptionTable()) {
    if (SectionOf(row.key) != section) {
      section = SectionOf(row.key);
      text += fmt::format("\n[{}]\n", section);
    }
    text += fmt::format("{} = {}\n", row.key.substr(section.size() + 1), row.get(options));
  }
  return text;
}

TrainOptions ResolveOptions(const OptionSources& sources) {
  Assignments file = ParseToml(sources.toml, sources.toml_name);
  const std::string file_preset = Take(file, kPreset);
  Take(file, kDataFromRun);
  const std::string preset = !sources.preset.empty() ? sources.preset
                             : !file_preset.empty()  ? file_preset
                                                     : "tiny";
  TrainOptions options = PresetOptions(preset);
  const std::string init = Given(file, sources, "train.init").value_or("");
  const ModelConfig source = init.empty() ? ModelConfig{} : InitConfig(init);
  if (!init.empty()) options.model = source;
  AssignAll(options, file, sources);
  if (!init.empty()) CheckInit(source, options.model, init);
  return options;
}

TrainOptions ParseStoredOptions(std::string_view toml, std::string_view name,
                                std::string* data_from_run) {
  Assignments file = ParseToml(toml, name);
  const std::string preset = Take(file, kPreset), from_run = Take(file, kDataFromRun);
  if (data_from_run != nullptr) *data_from_run = from_run;
  TrainOptions options = PresetOptions(preset.empty() ? "tiny" : preset);
  Assign(options, file, name);
  options.Validate();
  return options;
}

TrainOptions ResolveResumed(const TrainOptions& stored, const OptionSources& sources,
                            const std::vector<std::string>& forced) {
  std::set<std::string> allowed;
  for (const std::string& key : forced) allowed.insert(FindOption("--force", key).key);
  Assignments file = ParseToml(sources.toml, sources.toml_name);
  const std::string file_preset = Take(file, kPreset);
  Take(file, kDataFromRun);
  for (const std::string& preset : {sources.preset, file_preset}) {
    if (!preset.empty() && preset != stored.preset) {
      Throw(ErrorCode::kUsage, "resume: got preset '{}', but the run was started with '{}'", preset,
            stored.preset);
    }
  }
  TrainOptions options = stored;
  AssignAll(options, file, sources);
  std::vector<std::string> refused;
  for (const OptionRow& row : TrainOptionTable()) {
    if (!row.course || row.get(options) == row.get(stored)) continue;
    if (row.key.starts_with("model.")) {
      Throw(ErrorCode::kUsage, "resume: {} is {}, but the run was started with {}; start a new run",
            row.key, row.get(options), row.get(stored));
    }
    if (allowed.contains(row.key)) continue;
    refused.push_back(fmt::format("{} ({}, was {})", row.key, row.get(options), row.get(stored)));
  }
  if (!refused.empty()) {
    Throw(ErrorCode::kUsage,
          "resume: changed settings would alter the course of the run: {}; start a new run, or "
          "allow each with --force KEY",
          Join(refused, ", "));
  }
  return options;
}

std::string OptionsDocument() {
  const TrainOptions defaults = PresetOptions("tiny");
  std::string text =
      "# Options of a training run\n\n"
      "Made by `denseformer train --print-options`; a test compares this file with the program.\n\n"
      "Each option is a key of the configuration file, a `--set key=value` and a flag. Later ones\n"
      "win: preset < file (`--config FILE.toml`) < `--set` < flags. Defaults are those of the "
      "preset\n`tiny`. A flag of a true/false option switches it on, `--no-...` off. *Course*: a "
      "resumed run refuses another value unless `--force KEY` names "
      "it.\n";
  std::string section;
  for (const OptionRow& row : TrainOptionTable()) {
    if (SectionOf(row.key) != section) {
      section = SectionOf(row.key);
      text += fmt::format(
          "\n## [{}]\n\n| key | flag | type | default | course | meaning |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          section);
    }
    text += fmt::format("| `{}` | `{}` | {} | `{}` | {} | {} |\n", row.key, row.flag, row.type,
                        row.get(defaults), row.course ? "yes" : "", row.help);
  }
  text += "\n## Depth patterns\n\nWhat `model.dwa` may be, or the path of a mask file:\n\n";
  text += DepthPattern::Forms();
  return text;
}

}  // namespace denseformer

#include "sweep/sweep_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/study.h"
#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/text.h"
#include "sweep/charts.h"
#include "sweep/metrics.h"
#include "sweep/toml_reader.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 24;
constexpr size_t kMostCombinations = 10'000;  // of a grid

// What the rows of a file share, and the place to look up variables.
struct Context {
  std::string path, scale;
  std::vector<std::string> scales;  // those that there are
  const toml::table* variables = nullptr;
  SweepRow defaults;
};

// Options of a table, added behind those that `row` has.
void AddOptions(const toml::table& table, const Context& context, SweepRow& row) {
  TomlReader reader(table, context.variables, context.path);
  for (const auto& [toml_key, node] : table) {
    const std::string key(toml_key.str());
    const std::string text = ValueText(*reader.Node(key), reader.Where(key));
    if (key == "preset") {
      row.preset = text;
      continue;
    }
    const std::string full = FindOption(reader.Where(key), key).key;
    if (full == "train.seed" || full == "data.path") {
      Throw(ErrorCode::kInvalid, "{}: {} is no option of a row; give {}", reader.Where(key), full,
            full == "data.path" ? "data = \"NAME\"" : "seeds = [...]");
    }
    std::erase_if(row.options, [&](const auto& option) { return option.first == full; });
    row.options.emplace_back(full, text);
  }
}

void ReadRowKeys(TomlReader& reader, const Context& context, SweepRow& row) {
  if (const auto seeds = reader.Integers("seeds")) {
    row.seeds = *seeds;
    if (std::set<int64_t>(seeds->begin(), seeds->end()).size() != seeds->size()) {
      Throw(ErrorCode::kInvalid, "{}: a seed is given twice", reader.Where("seeds"));
    }
  }
  if (const auto data = reader.Text("data")) row.data = *data;
  if (const auto studies = reader.Texts("studies")) {
    row.studies = *studies;
    std::vector<std::string> known;
    for (const Study* study : Studies()) known.emplace_back(study->name);
    for (const std::string& study : *studies) {
      if (std::find(known.begin(), known.end(), study) != known.end()) continue;
      Throw(ErrorCode::kInvalid, "{}: unknown study '{}'{}; there are {}", reader.Where("studies"),
            Printable(study), DidYouMean(study, known), Join(known, ", "));
    }
  }
  if (const toml::table* options = reader.Table("options")) AddOptions(*options, context, row);
}

// Whether the row belongs to the scale in use.
bool Applies(TomlReader& reader, const Context& context) {
  const auto only = reader.Texts("only");
  if (!only) return true;
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& scale : *only) {
    if (has(context.scales, scale)) continue;
    Throw(ErrorCode::kInvalid, "{}: unknown scale '{}'{}; there are: {}", reader.Where("only"),
          Printable(scale), DidYouMean(scale, context.scales),
          context.scales.empty() ? "none" : Printable(Join(context.scales, ", ")));
  }
  return has(*only, context.scale);
}

void CheckRow(const SweepRow& row, const std::string& where) {
  if (row.data.empty()) Throw(ErrorCode::kInvalid, "{}: '{}' has no data", where, row.name);
  if (row.seeds.empty()) Throw(ErrorCode::kInvalid, "{}: '{}' has no seeds", where, row.name);
  try {
    for (const int64_t seed : row.seeds) row.OptionsOf(seed);
  } catch (const Error& error) {
    Throw(ErrorCode::kInvalid, "{}: '{}': {}", where, row.name, error.what());
  }
}

void AddRow(const SweepRow& row, const std::string& where, SweepFile& file) {
  if (Printable(row.name) != row.name) {
    Throw(ErrorCode::kInvalid, "{}: the name '{}' has control characters", where,
          Printable(row.name));
  }
  for (const SweepRow& other : file.rows) {
    if (other.name == row.name) {
      Throw(ErrorCode::kInvalid, "{}: two rows are named '{}'", where, row.name);
    }
  }
  CheckRow(row, where);
  file.rows.push_back(row);
}

void ReadRow(const toml::table& table, const Context& context, SweepFile& file) {
  TomlReader reader(table, context.variables, context.path);
  SweepRow row = context.defaults;
  const auto name = reader.Text("name");
  if (!name) Throw(ErrorCode::kInvalid, "{}: a row needs a name", reader.Where());
  row.name = *name;
  ReadRowKeys(reader, context, row);
  row.paper = reader.Number("paper");
  row.note = reader.Text("note").value_or("");
  const bool applies = Applies(reader, context);
  reader.CheckAllRead();
  if (applies) AddRow(row, reader.Where(), file);
}

struct GridAxis {
  std::string key, full;
  std::vector<std::string> values;
};

// `text` with every `mark` replaced by `value`.
std::string Filled(std::string text, const std::string& mark, const std::string& value) {
  for (size_t at = text.find(mark); at != std::string::npos;
       at = text.find(mark, at + value.size())) {
    text.replace(at, mark.size(), value);
  }
  return text;
}

// All combinations, the last axis fastest.
void AddCombinations(const std::vector<GridAxis>& axes, const SweepRow& base,
                     const std::string& where, SweepFile& file) {
  size_t combinations = 1;
  for (const GridAxis& axis : axes) {
    combinations *= std::min(axis.values.size(), kMostCombinations + 1);
    if (combinations > kMostCombinations) {
      Throw(ErrorCode::kInvalid, "{}: the grid has more than {} combinations; split it", where,
            kMostCombinations);
    }
  }
  std::vector<size_t> at(axes.size(), 0);
  while (true) {
    SweepRow row = base;
    for (size_t a = 0; a < axes.size(); ++a) {
      const std::string& value = axes[a].values[at[a]];
      std::erase_if(row.options, [&](const auto& option) { return option.first == axes[a].full; });
      row.options.emplace_back(axes[a].full, value);
      row.name = Filled(std::move(row.name), "{" + axes[a].key + "}", value);
    }
    AddRow(row, where, file);
    size_t a = axes.size();
    while (a > 0 && ++at[a - 1] == axes[a - 1].values.size()) at[--a] = 0;
    if (a == 0) return;
  }
}

void ReadGrid(const toml::table& table, const Context& context, SweepFile& file) {
  TomlReader reader(table, context.variables, context.path);
  SweepRow row = context.defaults;
  ReadRowKeys(reader, context, row);
  const auto name = reader.Text("name");
  const toml::table* given = reader.Table("axes");
  if (given == nullptr || given->empty()) {
    Throw(ErrorCode::kInvalid, "{}: a grid needs axes = {{ KEY = [VALUES] }}", reader.Where());
  }
  TomlReader axis_reader(*given, context.variables, context.path);
  std::vector<GridAxis> axes;
  for (const auto& [toml_key, node] : *given) {
    const std::string key(toml_key.str());
    const std::string where = axis_reader.Where(key);
    axes.push_back({key, FindOption(where, key).key, *axis_reader.Values(key)});
    if (!name) row.name += fmt::format("{}{}={{{}}}", row.name.empty() ? "" : ", ", key, key);
  }
  if (name) row.name = *name;
  const bool applies = Applies(reader, context);
  reader.CheckAllRead();
  if (applies) AddCombinations(axes, row, reader.Where(), file);
}

Claim ReadClaim(const toml::table& table, const Context& context, const SweepFile& file,
                bool& applies) {
  struct Word {
    const char* key;
    Relation relation;
  };
  constexpr Word kWords[] = {
      {"less", Relation::kLess}, {"greater", Relation::kGreater}, {"equal", Relation::kEqual}};
  TomlReader reader(table, context.variables, context.path);
  Claim claim;
  claim.text = reader.Text("text").value_or("");
  claim.metric = reader.Text("metric").value_or("loss");
  CheckMetric(claim.metric, reader.Where("metric"));
  claim.margin = reader.Number("margin").value_or(0);
  applies = Applies(reader, context);
  int relations = 0;
  for (const Word& word : kWords) {
    const toml::node* node = reader.Node(word.key);
    if (node == nullptr) continue;
    ++relations;
    const toml::array* pair = node->as_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !((*pair)[1].is_string() || IsFiniteNumber((*pair)[1]))) {
      Throw(ErrorCode::kInvalid, "{}: {}: expected [\"ROW\", \"ROW\" or NUMBER]",
            reader.Where(word.key), word.key);
    }
    claim.relation = word.relation;
    claim.left = (*pair)[0].as_string()->get();
    if ((*pair)[1].is_string()) {
      claim.right = (*pair)[1].as_string()->get();
    } else {
      claim.right = *(*pair)[1].value<double>();
    }
    if (!applies) continue;
    file.Row(reader.Where(word.key), claim.left);
    if (const auto* row = std::get_if<std::string>(&claim.right)) {
      file.Row(reader.Where(word.key), *row);
    }
  }
  reader.CheckAllRead();
  if (relations != 1 || claim.text.empty()) {
    Throw(ErrorCode::kInvalid, "{}: a claim needs text and one of less, greater, equal",
          reader.Where());
  }
  if ((claim.relation == Relation::kEqual) != (claim.margin > 0)) {
    Throw(ErrorCode::kInvalid, "{}: equal needs a margin above 0, less and greater have none",
          reader.Where());
  }
  return claim;
}

Exchange ReadExchange(const toml::table& table, const Context& context, const SweepFile& file,
                      bool& applies) {
  TomlReader reader(table, context.variables, context.path);
  Exchange exchange;
  exchange.model = reader.Text("model").value_or("");
  exchange.others = reader.Texts("others").value_or(std::vector<std::string>{});
  applies = Applies(reader, context);
  reader.CheckAllRead();
  if (exchange.model.empty() || exchange.others.size() < 2) {
    Throw(ErrorCode::kInvalid, "{}: an exchange needs a model and two others or more",
          reader.Where());
  }
  if (!applies) return exchange;
  file.Row(reader.Where("model"), exchange.model);
  std::set<int64_t> steps;
  for (const std::string& other : exchange.others) {
    const SweepRow& row = file.Row(reader.Where("others"), other);
    if (steps.insert(row.OptionsOf(row.seeds.front()).steps).second) continue;
    Throw(ErrorCode::kInvalid, "{}: two of the others have the same number of steps",
          reader.Where("others"));
  }
  return exchange;
}

SweepChart ReadChart(const toml::table& table, const Context& context, const SweepFile& file,
                     bool& applies) {
  TomlReader reader(table, context.variables, context.path);
  SweepChart chart;
  chart.kind = reader.Text("kind").value_or("");
  chart.title = reader.Text("title").value_or("");
  chart.rows = reader.Texts("rows").value_or(std::vector<std::string>{});
  chart.x = reader.Text("x").value_or("");
  chart.series = reader.Text("series").value_or("");
  applies = Applies(reader, context);
  reader.CheckAllRead();
  CheckChart(chart, reader.Where("kind"));
  for (const std::string& row : chart.rows) {
    if (applies) file.Row(reader.Where("rows"), row);
  }
  return chart;
}

}  // namespace

TrainOptions SweepRow::OptionsOf(int64_t seed) const {
  OptionSources sources;
  sources.preset = preset;
  sources.sets = options;
  sources.flags = {{"train.seed", std::to_string(seed)}};
  return ResolveOptions(sources);
}

const SweepRow& SweepFile::Row(std::string_view where, const std::string& name) const {
  std::vector<std::string> names;
  for (const SweepRow& row : rows) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  Throw(ErrorCode::kInvalid, "{}: no row '{}'{}; there are: {}", where, Printable(name),
        DidYouMean(name, names), Join(names, ", "));
}

SweepFile ParseSweepFile(std::string_view text, const std::string& path, const std::string& scale) {
  const toml::table table = ParseTomlTable(text, path);
  Context context{path, scale, {}, nullptr, {}};
  SweepFile file;
  file.path = path;
  file.id = fs::path(path).stem().string();
  TomlReader top(table, nullptr, path);
  toml::table scales;
  const auto scales_name = top.Text("scales");
  if (scales_name) {
    if (Printable(*scales_name) != *scales_name) {
      Throw(ErrorCode::kInvalid, "{}: control characters are not allowed", top.Where("scales"));
    }
    const std::string scales_path = (fs::path(path).parent_path() / *scales_name).string();
    scales = ParseTomlTable(ReadFile(scales_path, kMostBytes), scales_path);
    for (const auto& [key, node] : scales) context.scales.emplace_back(key.str());
    const toml::node* found = scales.get(scale);
    if (found == nullptr || !found->is_table()) {
      Throw(ErrorCode::kUsage, "{}: got scale '{}', expected one of {}; give --scale NAME", path,
            scale, Printable(Join(context.scales, ", ")));
    }
    context.variables = found->as_table();
    TomlReader scale_reader(*context.variables, nullptr, scales_path);
    file.scale_title = scale_reader.Text("title").value_or("");
    file.scale_text = scale_reader.Text("text").value_or("");
    if (const toml::node* options = context.variables->get("options")) {
      if (!options->is_table()) {
        Throw(ErrorCode::kInvalid, "{}: {}.options: expected a table", scales_path, scale);
      }
      AddOptions(*options->as_table(), {scales_path, scale, {}, context.variables, {}},
                 context.defaults);
    }
  } else if (!scale.empty()) {
    Throw(ErrorCode::kUsage, "{}: got scale '{}', but the file has no scales", path, scale);
  }
  TomlReader reader(table, context.variables, path);
  reader.Text("scales");
  file.title = reader.Text("title").value_or(file.id);
  file.text = reader.Text("text").value_or("");
  file.baseline = reader.Text("baseline").value_or("");
  ReadRowKeys(reader, context, context.defaults);
  for (const toml::table* row : reader.Tables("row")) ReadRow(*row, context, file);
  for (const toml::table* grid : reader.Tables("grid")) ReadGrid(*grid, context, file);
  if (file.rows.empty()) Throw(ErrorCode::kInvalid, "{}: no rows; add [[row]] or [[grid]]", path);
  if (!file.baseline.empty()) file.Row(reader.Where("baseline"), file.baseline);
  for (const toml::table* entry : reader.Tables("claim")) {
    bool applies = true;
    const Claim claim = ReadClaim(*entry, context, file, applies);
    if (applies) file.claims.push_back(claim);
  }
  for (const toml::table* entry : reader.Tables("exchange")) {
    bool applies = true;
    const Exchange exchange = ReadExchange(*entry, context, file, applies);
    if (applies) file.exchanges.push_back(exchange);
  }
  for (const toml::table* entry : reader.Tables("chart")) {
    bool applies = true;
    const SweepChart chart = ReadChart(*entry, context, file, applies);
    if (applies) file.charts.push_back(chart);
  }
  reader.CheckAllRead();
  return file;
}

SweepFile ReadSweepFile(const std::string& path, const std::string& scale) {
  return ParseSweepFile(ReadFile(path, kMostBytes), path, scale);
}

}  // namespace denseformer

// The comparison of runs: their results and the options in which they differ.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/report.h"
#include "base/error.h"
#include "base/text.h"
#include "chart/svg.h"
#include "denseformer/depth_pattern.h"
#include "model/parameters.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string Count(double value) { return WithCommas(std::llround(value)); }
std::string Loss(double value) { return fmt::format("{:.4f}", value); }
std::string Perplexity(double value) {
  return value < 1e6 ? fmt::format("{:.2f}", value) : ShortNumber(value);
}
std::string Percent(double value) { return fmt::format("{:.2f} %", 100 * value); }

enum class Better { kNeither, kLower, kHigher };

// A column of the table: where its number stands in Row::results.
struct Column {
  const char* head;
  const char* csv;
  std::vector<const char*> path;
  std::string (*text)(double);
  Better better = Better::kNeither;
};
const std::vector<Column>& Columns() {
  // The results first: a narrow screen shows as many as fit.
  static const std::vector<Column> columns = {
      {"Validation loss", "validation_loss", {"validation", "loss"}, Loss, Better::kLower},
      {"Perplexity", "perplexity", {"validation", "perplexity"}, Perplexity, Better::kLower},
      {"Accuracy", "accuracy", {"validation", "accuracy"}, Percent, Better::kHigher},
      {"Bits per byte", "bits_per_byte", {"validation", "bits_per_byte"}, Loss, Better::kLower},
      {"Parameters", "parameters", {"parameters"}, Count},
      {"DWA weights", "dwa_weights", {"dwa_weights"}, Count},
      {"Steps", "steps", {"steps"}, Count},
      {"Tokens", "tokens", {"tokens"}, Count},
      {"Tokens/s", "tokens_per_second", {"tokens_per_second"}, Count},
      {"Time", "seconds", {"seconds"}, HumanDuration},
  };
  return columns;
}

// What a run that is not finished has recorded so far, under the keys of summary.json.
Json SoFar(const RunData& run) {
  const ParameterTable table(run.config, DepthPattern::Parse(run.config.dwa, run.config.n_layer));
  Json results = {
      {"parameters", table.count()},
      {"dwa_weights", table.count(ParameterGroup::kDwa) + table.count(ParameterGroup::kMixer)}};
  const Curve& curve = run.train_loss;
  if (curve.step.empty()) return results;
  results["steps"] = curve.step.back();
  results["tokens"] = curve.tokens.back();
  results["seconds"] = curve.seconds.back();
  double seconds_per_token = 0;
  for (const double rate : run.throughput.value) seconds_per_token += 1 / rate;
  results["tokens_per_second"] =
      static_cast<double>(run.throughput.value.size()) / seconds_per_token;
  return results;
}

// A row of the table.
struct Row {
  explicit Row(const RunData& run)
      : run(run), results(run.summary.is_null() ? SoFar(run) : run.summary) {
    if (!results.contains("validation") && !run.validation_loss.value.empty()) {
      sample_loss = run.validation_loss.value.back();
    }
  }

  const RunData& run;
  Json results;
  // Of the newest validation during training, which reads a sample; NaN where there is none, or
  // where there is the loss of the whole stream.
  double sample_loss = kNone;
};

std::vector<Row> RowsOf(const std::vector<RunData>& runs) { return {runs.begin(), runs.end()}; }

double Number(const Row& row, const Column& column) {
  const Json* at = &row.results;
  const char* name = "it";
  const auto wrong = [&](const char* expected) {
    Throw(ErrorCode::kCorrupt, "{}/summary.json: {} is {}, expected {}; the file is damaged",
          row.run.path, name, at->dump(), expected);
  };
  for (const char* key : column.path) {
    if (at->is_null()) return kNone;
    if (!at->is_object()) wrong("an object");
    const auto found = at->find(key);
    if (found == at->end()) return kNone;
    at = &*found;
    name = key;
  }
  if (at->is_null()) return kNone;  // a value that was not finite
  if (!at->is_number()) wrong("a number");
  const double value = at->get<double>();
  return std::isfinite(value) ? value : kNone;
}

// On the sample of the validation stream; NaN for columns without such a number.
double SampleNumber(const Row& row, const Column& column) {
  const std::string name = column.csv;
  const double value = name == "validation_loss" ? row.sample_loss
                       : name == "perplexity"    ? std::exp(row.sample_loss)
                                                 : kNone;
  return std::isfinite(value) ? value : kNone;
}

// The best of several runs; NaN where there is nothing to compare.
double Best(const std::vector<Row>& rows, const Column& column) {
  double best = kNone;
  int known = 0;
  for (const Row& row : rows) {
    const double value = Number(row, column);
    if (std::isnan(value)) continue;
    ++known;
    if (std::isnan(best) || (column.better == Better::kLower ? value < best : value > best))
      best = value;
  }
  return known > 1 && column.better != Better::kNeither ? best : kNone;
}

// What the table says about a number; a star marks the sample's.
std::string Cell(const Row& row, const Column& column) {
  const double value = Number(row, column), sample = SampleNumber(row, column);
  if (!std::isnan(value)) return EscapeXml(column.text(value));
  return std::isnan(sample) ? "–" : EscapeXml(column.text(sample)) + "*";
}

std::string CsvCell(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string DifferencesHtml(const std::vector<RunData>& runs) {
  std::vector<std::map<std::string, std::string>> options;
  std::map<std::string, int> keys;
  for (const RunData& run : runs) {
    options.push_back(RunOptions(run));
    for (const auto& [key, value] : options.back()) keys[key] = 0;
  }
  std::string rows;
  for (const auto& [key, unused] : keys) {
    const auto value_of = [&key = key](const std::map<std::string, std::string>& of) {
      const auto found = of.find(key);
      return found == of.end() ? std::string() : found->second;
    };
    const bool same = std::all_of(options.begin(), options.end(), [&](const auto& of) {
      return value_of(of) == value_of(options.front());
    });
    if (same) continue;
    rows += fmt::format("<tr><th scope=\"row\" class=\"left\">{}</th>", EscapeXml(key));
    for (const auto& of : options) {
      const std::string value = value_of(of);
      rows += fmt::format("<td>{}</td>", value.empty() ? "–" : EscapeXml(value));
    }
    rows += "</tr>\n";
  }
  if (rows.empty()) return "";
  std::string heads = "<th scope=\"col\" class=\"left\">Option</th>";
  for (const RunData& run : runs)
    heads += fmt::format("<th scope=\"col\">{}</th>", EscapeXml(run.name));
  return fmt::format(
      "<p class=\"soft\">Options in which the runs differ:</p>\n<div class=\"scroll\"><table>"
      "<thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
      heads, rows);
}

}  // namespace

std::map<std::string, std::string> RunOptions(const RunData& run) {
  std::map<std::string, std::string> options;
  std::string section;
  for (const std::string& line : Split(run.options, '\n')) {
    const std::string_view text = Trim(line);
    const size_t equal = text.find('=');
    if (text.starts_with('[') && text.ends_with(']')) {
      section = std::string(text.substr(1, text.size() - 2)) + ".";
    } else if (!text.starts_with('#') && equal != std::string_view::npos) {
      options[section + std::string(Trim(text.substr(0, equal)))] = Trim(text.substr(equal + 1));
    }
  }
  return options;
}

std::string ReportCsv(const std::vector<RunData>& runs) {
  std::string csv = "run,model";
  for (const Column& column : Columns()) csv += fmt::format(",{}", column.csv);
  csv += "\n";
  for (const Row& row : RowsOf(runs)) {
    csv += CsvCell(row.run.name) + "," + CsvCell(Describe(row.run.config));
    for (const Column& column : Columns()) {
      const double value = Number(row, column);
      csv += std::isnan(value) ? "," : fmt::format(",{}", value);
    }
    csv += "\n";
  }
  return csv;
}

std::string ReportTableHtml(const std::vector<RunData>& runs) {
  const std::vector<Row> rows = RowsOf(runs);
  // Columns that no run fills are left out.
  std::vector<const Column*> columns;
  for (const Column& column : Columns()) {
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const Row& row) { return Cell(row, column) != "–"; })) {
      columns.push_back(&column);
    }
  }
  std::string html =
      "<div class=\"scroll\"><table class=\"results\"><thead><tr>"
      "<th scope=\"col\" class=\"left\">Run</th>";
  for (const Column* column : columns)
    html += fmt::format("<th scope=\"col\">{}</th>", column->head);
  html += "<th scope=\"col\" class=\"left\">Model</th></tr></thead><tbody>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    html += fmt::format("<tr><th scope=\"row\" class=\"left\"><i class=\"swatch {}\"></i>{}</th>",
                        SeriesClass(r), EscapeXml(row.run.name));
    for (const Column* column : columns) {
      const bool best = Number(row, *column) == Best(rows, *column);
      html += fmt::format("<td{}>{}</td>", best ? " class=\"best\"" : "", Cell(row, *column));
    }
    html += fmt::format("<td class=\"left\">{}</td></tr>\n", EscapeXml(Describe(row.run.config)));
  }
  html += "</tbody></table></div>\n";
  if (std::any_of(rows.begin(), rows.end(),
                  [](const Row& row) { return std::isfinite(row.sample_loss); })) {
    html +=
        "<p class=\"soft\">* On the sample of the validation stream that training reads, at the "
        "newest validation: the whole stream has not been evaluated.</p>\n";
  }
  return html;
}

std::vector<std::string> ReportSentences(const std::vector<RunData>& runs) {
  const auto column = std::find_if(Columns().begin(), Columns().end(), [](const Column& c) {
    return std::string(c.csv) == "perplexity";
  });
  const std::vector<Row> rows = RowsOf(runs);
  const Row *best = nullptr, *first = nullptr;
  for (const Row& row : rows) {
    const double value = Number(row, *column);
    if (std::isnan(value)) continue;
    if (first == nullptr) first = &row;
    if (best == nullptr || value < Number(*best, *column)) best = &row;
  }
  if (best == nullptr) return {};
  const std::string& name = best->run.name;
  const double lowest = Number(*best, *column), reference = Number(*first, *column);
  if (runs.size() == 1) {
    return {fmt::format("{} has a validation perplexity of {}.", name, Perplexity(lowest))};
  }
  std::string text =
      fmt::format("{} has the lowest validation perplexity, {}", name, Perplexity(lowest));
  if (best != first) {
    text += fmt::format(": {:.2f} % below the {} of {}", 100 * (1 - lowest / reference),
                        Perplexity(reference), first->run.name);
  }
  return {text + "."};
}

std::string ReportOptionsHtml(const std::vector<RunData>& runs) {
  std::string html = runs.size() > 1 ? DifferencesHtml(runs) : "";
  for (const RunData& run : runs) {
    html += fmt::format(
        "<details><summary>{}</summary><pre>{}</pre></details>\n", EscapeXml(run.name),
        EscapeXml(run.options.empty() ? "The run does not hold its options." : run.options));
  }
  return html;
}

}  // namespace denseformer

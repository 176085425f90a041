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

// A column of the table: where its number stands in summary.json.
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

double Number(const RunData& run, const Column& column) {
  const Json* at = &run.summary;
  const char* name = "it";
  const auto wrong = [&](const char* expected) {
    Throw(ErrorCode::kCorrupt, "{}/summary.json: {} is {}, expected {}; the file is damaged",
          run.path, name, at->dump(), expected);
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

// The best of several runs; NaN where there is nothing to compare.
double Best(const std::vector<RunData>& runs, const Column& column) {
  double best = kNone;
  int known = 0;
  for (const RunData& run : runs) {
    const double value = Number(run, column);
    if (std::isnan(value)) continue;
    ++known;
    if (std::isnan(best) || (column.better == Better::kLower ? value < best : value > best))
      best = value;
  }
  return known > 1 && column.better != Better::kNeither ? best : kNone;
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
  for (const RunData& run : runs) {
    csv += CsvCell(run.name) + "," + CsvCell(Describe(run.config));
    for (const Column& column : Columns()) {
      const double value = Number(run, column);
      csv += std::isnan(value) ? "," : fmt::format(",{}", value);
    }
    csv += "\n";
  }
  return csv;
}

std::string ReportTableHtml(const std::vector<RunData>& runs) {
  // Columns that no run fills are left out.
  std::vector<const Column*> columns;
  for (const Column& column : Columns()) {
    if (std::any_of(runs.begin(), runs.end(),
                    [&](const RunData& run) { return !std::isnan(Number(run, column)); })) {
      columns.push_back(&column);
    }
  }
  std::string html =
      "<div class=\"scroll\"><table class=\"results\"><thead><tr>"
      "<th scope=\"col\" class=\"left\">Run</th>";
  for (const Column* column : columns)
    html += fmt::format("<th scope=\"col\">{}</th>", column->head);
  html += "<th scope=\"col\" class=\"left\">Model</th></tr></thead><tbody>\n";
  for (size_t r = 0; r < runs.size(); ++r) {
    const RunData& run = runs[r];
    html += fmt::format("<tr><th scope=\"row\" class=\"left\"><i class=\"swatch {}\"></i>{}</th>",
                        SeriesClass(r), EscapeXml(run.name));
    for (const Column* column : columns) {
      const double value = Number(run, *column);
      html += fmt::format("<td{}>{}</td>", value == Best(runs, *column) ? " class=\"best\"" : "",
                          std::isnan(value) ? "–" : EscapeXml(column->text(value)));
    }
    html += fmt::format("<td class=\"left\">{}</td></tr>\n", EscapeXml(Describe(run.config)));
  }
  return html + "</tbody></table></div>\n";
}

std::vector<std::string> ReportSentences(const std::vector<RunData>& runs) {
  const auto column = std::find_if(Columns().begin(), Columns().end(), [](const Column& c) {
    return std::string(c.csv) == "perplexity";
  });
  const RunData *best = nullptr, *first = nullptr;
  for (const RunData& run : runs) {
    const double value = Number(run, *column);
    if (std::isnan(value)) continue;
    if (first == nullptr) first = &run;
    if (best == nullptr || value < Number(*best, *column)) best = &run;
  }
  if (best == nullptr) return {};
  const double lowest = Number(*best, *column), reference = Number(*first, *column);
  if (runs.size() == 1) {
    return {fmt::format("{} has a validation perplexity of {}.", best->name, Perplexity(lowest))};
  }
  std::string text =
      fmt::format("{} has the lowest validation perplexity, {}", best->name, Perplexity(lowest));
  if (best != first) {
    text += fmt::format(": {:.2f} % below the {} of {}", 100 * (1 - lowest / reference),
                        Perplexity(reference), first->name);
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

#include "sweep/document.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "analysis/report_assets.h"
#include "analysis/tradeoff.h"
#include "base/error.h"
#include "base/text.h"
#include "chart/chart_style.h"
#include "chart/svg.h"
#include "sweep/charts.h"
#include "sweep/metrics.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string Number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

// "5.281 ± 0.012"; without the error for one run.
std::string WithError(const Estimate& estimate, int digits) {
  if (estimate.count == 0) return "";
  const std::string mean = Number(estimate.mean, digits);
  return std::isfinite(estimate.standard_error)
             ? fmt::format("{} ± {}", mean, Number(estimate.standard_error, digits))
             : mean;
}

// Of ForwardRate or TrainingRate.
double Speed(const RowResult& row, const Benches& benches, decltype(ForwardRate)& rate) {
  const ModelConfig model = row.row->OptionsOf(row.row->seeds.front()).model;
  // The benchmark has no gains.
  return model.gains ? kNone : rate(benches, model);
}

std::string SeedsText(const RowResult& row) {
  std::vector<std::string> parts = {std::to_string(row.finished)};
  if (row.diverged > 0) parts.push_back(fmt::format("{} diverged", row.diverged));
  if (row.failed > 0) parts.push_back(fmt::format("{} failed", row.failed));
  if (row.missing > 0) parts.push_back(fmt::format("{} missing", row.missing));
  return Join(parts, ", ");
}

std::string ClaimNumbers(const ClaimResult& outcome) {
  const PairedDifference& difference = outcome.difference;
  if (difference.pairs == 0) return "";
  const auto* row = std::get_if<std::string>(&outcome.claim->right);
  const auto* number = std::get_if<double>(&outcome.claim->right);
  std::string text = fmt::format(
      "{}: {} less {}: {:+.3f}", MetricLabel(outcome.claim->metric), outcome.claim->left,
      row != nullptr ? *row : fmt::format("{}", *number), difference.mean);
  if (difference.pairs > 1) text += ", 95 % interval " + Interval(difference);
  if (outcome.claim->relation == Relation::kEqual) {
    text += fmt::format(", margin {}", outcome.claim->margin);
  } else if (std::isfinite(outcome.holm_p)) {
    text += ", Holm p " + PText(outcome.holm_p);
  }
  return text + fmt::format(", {} pair{}", difference.pairs, difference.pairs == 1 ? "" : "s");
}

std::string ClaimLine(const ClaimResult& outcome) {
  const std::string numbers = ClaimNumbers(outcome);
  return outcome.claim->text + (numbers.empty() ? "" : " (" + numbers + ")");
}

int CountVerdicts(const SweepResult& result, Verdict verdict) {
  return static_cast<int>(
      std::count_if(result.claims.begin(), result.claims.end(),
                    [&](const ClaimResult& claim) { return claim.verdict == verdict; }));
}

constexpr Verdict kVerdicts[] = {Verdict::kAgrees, Verdict::kDisagrees, Verdict::kNotResolved,
                                 Verdict::kNotRun};

TextTable Overview(const std::vector<SweepResult>& results) {
  TextTable table{{"part", "runs", "agrees", "disagrees", "not resolved", "not run"}, {}};
  for (const SweepResult& result : results) {
    int done = 0, all = 0;
    for (const RowResult& row : result.rows) {
      done += row.finished + row.diverged + row.failed;
      all += static_cast<int>(row.runs.size());
    }
    std::vector<std::string> cells = {result.file->title, fmt::format("{} of {}", done, all)};
    for (const Verdict verdict : kVerdicts)
      cells.push_back(std::to_string(CountVerdicts(result, verdict)));
    table.rows.push_back(cells);
  }
  return table;
}

// Columns of which every cell is empty say nothing.
TextTable WithoutEmptyColumns(const TextTable& table) {
  TextTable kept;
  kept.rows.resize(table.rows.size());
  for (size_t c = 0; c < table.headers.size(); ++c) {
    const bool used = std::any_of(table.rows.begin(), table.rows.end(),
                                  [c](const auto& row) { return !row[c].empty(); });
    if (!used) continue;
    kept.headers.push_back(table.headers[c]);
    for (size_t r = 0; r < table.rows.size(); ++r) kept.rows[r].push_back(table.rows[r][c]);
  }
  return kept;
}

constexpr const char* kReading =
    "Loss and perplexity are means over seeds ± standard error, over the whole validation stream "
    "at "
    "the last step. The difference is the mean of the paired differences (same seed: same initial "
    "shared weights, same batches) in loss to the first model named as baseline, with its 95 % "
    "t-interval, the p of a paired t-test after Holm's correction over the rows of the table, and "
    "the "
    "correlation of the pairs. A verdict compares the direction that the paper reports with ours: "
    "\"agrees\" and \"disagrees\" need a Holm p below 0.05 over the claims of the part (or, for "
    "\"equal\", a 95 % interval inside or outside of the margin); everything else is \"not "
    "resolved\". Speeds are forward passes and training steps a second of `denseformer bench` with "
    "these models, on one thread (`experiments/paper/speeds`).";

}  // namespace

std::string PText(double p) {
  if (!std::isfinite(p)) return "";
  return p < 0.0005 ? "< 0.001" : fmt::format("{:.3f}", p);
}

std::string Interval(const PairedDifference& difference) {
  return std::isfinite(difference.low)
             ? fmt::format("[{:+.3f}, {:+.3f}]", difference.low, difference.high)
             : "";
}

// Versions and CPUs of the runs that the results use.
std::string Provenance(const std::vector<SweepResult>& results) {
  std::set<const LedgerJson*> runs;
  for (const SweepResult& result : results) {
    for (const RowResult& row : result.rows) {
      for (const LedgerJson* run : row.runs) {
        if (run != nullptr) runs.insert(run);
      }
    }
  }
  std::set<std::string> machines;
  for (const LedgerJson* run : runs) {
    const std::string cpu = run->value("cpu_name", ""), level = run->value("cpu", "");
    if (!level.empty()) {
      machines.insert(fmt::format("{} ({}, version {})", cpu.empty() ? "a CPU" : cpu, level,
                                  run->value("version", "?")));
    }
  }
  std::string text = fmt::format("{} run{}", runs.size(), runs.size() == 1 ? "" : "s");
  const std::vector<std::string> list(machines.begin(), machines.end());
  return list.empty() ? text : text + " on " + Join(list, "; ");
}

TextTable ResultTable(const SweepResult& result, const Benches& benches) {
  TextTable table{
      {"model", "paper", "seeds", "loss", "perplexity",
       "difference" + (result.file->baseline.empty() ? "" : " to " + result.file->baseline),
       "95 % interval", "Holm p", "correlation", "forward/s", "training steps/s", "note"},
      {}};
  for (const RowResult& row : result.rows) {
    const bool compared = row.difference.has_value();
    table.rows.push_back(
        {row.row->name, row.row->paper ? fmt::format("{:.2f}", *row.row->paper) : "",
         SeedsText(row), WithError(row.loss, 3), WithError(row.perplexity, 1),
         compared ? fmt::format("{:+.3f}", row.difference->mean) : "",
         compared ? Interval(*row.difference) : "", compared ? PText(row.holm_p) : "",
         compared ? Number(row.difference->correlation, 2) : "",
         Number(Speed(row, benches, ForwardRate), 1), Number(Speed(row, benches, TrainingRate), 1),
         row.row->note});
  }
  return WithoutEmptyColumns(table);
}

std::vector<std::string> ClaimLines(const SweepResult& result) {
  std::vector<std::string> lines;
  for (const ClaimResult& outcome : result.claims)
    lines.push_back(fmt::format("{}: {}", VerdictName(outcome.verdict), ClaimLine(outcome)));
  return lines;
}

Json ResultToJson(const SweepResult& result, const Benches& benches) {
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  const auto estimate = [&](const Estimate& e) {
    return Json{{"mean", number(e.mean)}, {"standard_error", number(e.standard_error)}};
  };
  const auto paired = [&](const PairedDifference& d, double holm) {
    return Json{{"pairs", d.pairs},
                {"mean", number(d.mean)},
                {"standard_error", number(d.standard_error)},
                {"low", number(d.low)},
                {"high", number(d.high)},
                {"p", number(d.p)},
                {"holm_p", number(holm)},
                {"correlation", number(d.correlation)}};
  };
  Json json = {{"id", result.file->id},
               {"title", result.file->title},
               {"baseline", result.file->baseline},
               {"rows", Json::array()},
               {"claims", Json::array()}};
  for (const RowResult& row : result.rows) {
    Json entry = {{"name", row.row->name},
                  {"finished", row.finished},
                  {"diverged", row.diverged},
                  {"failed", row.failed},
                  {"missing", row.missing},
                  {"loss", estimate(row.loss)},
                  {"perplexity", estimate(row.perplexity)},
                  {"tokens_per_second", estimate(row.tokens_per_second)},
                  {"parameters", row.parameters},
                  {"dwa_weights", row.dwa_weights},
                  {"batches_per_second", number(Speed(row, benches, ForwardRate))},
                  {"training_steps_per_second", number(Speed(row, benches, TrainingRate))}};
    entry["paper"] = row.row->paper ? Json(*row.row->paper) : Json();
    if (row.difference) entry["difference"] = paired(*row.difference, row.holm_p);
    json["rows"].push_back(entry);
  }
  for (const ClaimResult& outcome : result.claims) {
    json["claims"].push_back({{"text", outcome.claim->text},
                              {"metric", outcome.claim->metric},
                              {"verdict", VerdictName(outcome.verdict)},
                              {"difference", paired(outcome.difference, outcome.holm_p)}});
  }
  return json;
}

std::string DocumentToMarkdown(const DocumentInput& input) {
  std::string text =
      fmt::format("# {}\n\n{}\n\n{}: {}.\n\n{}\n\n{}", input.title, input.introduction,
                  "Made by `experiments/paper/run`", Provenance(input.results), kReading,
                  TableToMarkdown(Overview(input.results)));
  for (const SweepResult& result : input.results) {
    text += fmt::format("\n## {}\n\n", result.file->title);
    if (!result.file->text.empty()) text += result.file->text + "\n\n";
    text += TableToMarkdown(ResultTable(result, input.benches));
    if (!result.claims.empty()) text += "\n";
    for (const ClaimResult& outcome : result.claims)
      text += fmt::format("- **{}**: {}\n", VerdictName(outcome.verdict), ClaimLine(outcome));
    if (input.charts.empty()) continue;
    for (const Chart& chart : SweepCharts(result, input.benches)) {
      text += fmt::format("\n![{}]({}/{}.svg)\n", ChartTitle(chart), input.charts, ChartId(chart));
    }
  }
  return text;
}

std::string DocumentToHtml(const DocumentInput& input) {
  std::string body =
      fmt::format("<p class=\"lead\">{}</p>\n<p class=\"soft\">{}. {}</p>\n{}",
                  MarkdownToHtml(input.introduction), EscapeXml(Provenance(input.results)),
                  MarkdownToHtml(kReading), TableToHtml(Overview(input.results)));
  for (const SweepResult& result : input.results) {
    body += fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n<p>{}</p>\n{}<ul class=\"findings\">\n",
                        EscapeXml(result.file->id), MarkdownToHtml(result.file->title),
                        MarkdownToHtml(result.file->text),
                        TableToHtml(ResultTable(result, input.benches)));
    for (const ClaimResult& outcome : result.claims) {
      body += fmt::format("<li><b>{}</b>: {}</li>\n", VerdictName(outcome.verdict),
                          MarkdownToHtml(ClaimLine(outcome)));
    }
    body += "</ul>\n<div class=\"charts\">\n";
    for (const Chart& chart : SweepCharts(result, input.benches)) {
      // With title, legend and whiskers of its own; the page has no script.
      std::string svg = DrawSvg(chart, /*standalone=*/true);
      svg.erase(0, svg.find("<svg"));
      body += "<figure>" + svg + "</figure>\n";
    }
    body += "</div>\n</section>\n";
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<main>\n"
      "<h1>{0}</h1>\n{3}</main>\n</body>\n</html>\n",
      EscapeXml(input.title), kChartStyle, kReportStyle, body);
}

}  // namespace denseformer

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

// Of ForwardSpeed or TrainingSpeed.
MeasuredSpeed Speed(const RowResult& row, const Benches& benches, decltype(ForwardSpeed)& speed) {
  const ModelConfig model = row.row->OptionsOf(row.row->seeds.front()).model;
  // The benchmark has no gains.
  return model.gains ? MeasuredSpeed{kNone, kNone, kNone} : speed(benches, model);
}

// "9.4 ± 3.1": by how many percent it is slower than the Transformer, which has none itself.
std::string CostText(const MeasuredSpeed& speed) {
  if (!std::isfinite(speed.time_ratio) || !(speed.time_ratio_error > 0)) return "";
  return fmt::format("{:.1f} ± {:.1f}", 100 * (speed.time_ratio - 1), 100 * speed.time_ratio_error);
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
  const std::string diverged = DivergedText(outcome);
  if (difference.pairs == 0) return diverged;
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
  text += fmt::format(", {} pair{}", difference.pairs, difference.pairs == 1 ? "" : "s");
  return diverged.empty() ? text : text + "; " + diverged;
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

constexpr const char* kOtherRuns = "Other runs";

std::string OtherRunsText(const DocumentInput& input) {
  return fmt::format("{} run{} of the ledger {} in no table above:", input.other_run_count,
                     input.other_run_count == 1 ? "" : "s",
                     input.other_run_count == 1 ? "is" : "are");
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
    "resolved\", as is every claim about rows of which a run diverged. Speeds are forward passes "
    "and "
    "training steps per second of `denseformer bench` with these models, on one thread "
    "(`experiments/paper/speeds`); cost is the time above that of the Transformer of equal depth, "
    "measured in turns with it, ± standard error.";

}  // namespace

std::string DivergedText(const ClaimResult& outcome) {
  return outcome.diverged == 0
             ? ""
             : fmt::format("{} run{} diverged, so that those left are a selection",
                           outcome.diverged, outcome.diverged == 1 ? "" : "s");
}

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
       "95 % interval", "Holm p", "correlation", "parameters", "forward/s", "forward cost, %",
       "training steps/s", "training cost, %", "note"},
      {}};
  for (const RowResult& row : result.rows) {
    const bool compared = row.difference.has_value();
    const bool counted = !result.file->baseline.empty() && row.parameters > 0;
    const MeasuredSpeed forward = Speed(row, benches, ForwardSpeed),
                        training = Speed(row, benches, TrainingSpeed);
    table.rows.push_back(
        {row.row->name, row.row->paper ? fmt::format("{:.2f}", *row.row->paper) : "",
         SeedsText(row), WithError(row.loss, 3), WithError(row.perplexity, 1),
         compared ? fmt::format("{:+.3f}", row.difference->mean) : "",
         compared ? Interval(*row.difference) : "", compared ? PText(row.holm_p) : "",
         compared ? Number(row.difference->correlation, 2) : "",
         counted ? std::to_string(row.parameters) : "", Number(forward.per_second, 1),
         CostText(forward), Number(training.per_second, 1), CostText(training), row.row->note});
  }
  return WithoutEmptyColumns(table);
}

std::vector<std::string> ExchangeLines(const SweepResult& result, const Benches& benches) {
  std::vector<std::string> lines;
  for (const ExchangeResult& exchange : result.exchanges) {
    const RowResult &model = result.Row(exchange.exchange->model),
                    &other = result.Row(exchange.exchange->others.front());
    const MeasuredSpeed speed = Speed(model, benches, TrainingSpeed);
    // Benchmarks compare with the Transformer.
    const bool comparable = Speed(other, benches, TrainingSpeed).time_ratio == 1;
    lines.push_back(ExchangeText(exchange, comparable ? speed.time_ratio : kNone,
                                 comparable ? speed.time_ratio_error : kNone));
  }
  return lines;
}

std::vector<std::string> ClaimLines(const SweepResult& result) {
  std::vector<std::string> lines;
  for (const ClaimResult& outcome : result.claims)
    lines.push_back(fmt::format("{}: {}", VerdictName(outcome.verdict), ClaimLine(outcome)));
  return lines;
}

Json ResultToJson(const SweepResult& result, const Benches& benches) {
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  const auto time_ratio = [&](const MeasuredSpeed& s) {
    return Json{{"value", number(s.time_ratio)}, {"standard_error", number(s.time_ratio_error)}};
  };
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
  Json json = {
      {"id", result.file->id}, {"title", result.file->title}, {"baseline", result.file->baseline},
      {"rows", Json::array()}, {"claims", Json::array()},     {"exchanges", Json::array()}};
  for (const RowResult& row : result.rows) {
    const MeasuredSpeed forward = Speed(row, benches, ForwardSpeed),
                        training = Speed(row, benches, TrainingSpeed);
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
                  {"batches_per_second", number(forward.per_second)},
                  {"forward_time_ratio", time_ratio(forward)},
                  {"training_steps_per_second", number(training.per_second)},
                  {"training_time_ratio", time_ratio(training)}};
    entry["paper"] = row.row->paper ? Json(*row.row->paper) : Json();
    if (row.difference) entry["difference"] = paired(*row.difference, row.holm_p);
    json["rows"].push_back(entry);
  }
  for (const ClaimResult& outcome : result.claims) {
    json["claims"].push_back({{"text", outcome.claim->text},
                              {"metric", outcome.claim->metric},
                              {"verdict", VerdictName(outcome.verdict)},
                              {"diverged", outcome.diverged},
                              {"difference", paired(outcome.difference, outcome.holm_p)}});
  }
  for (const ExchangeResult& exchange : result.exchanges) {
    Json multiples = Json::array();
    for (const double multiple : exchange.multiples) multiples.push_back(number(multiple));
    json["exchanges"].push_back({{"model", exchange.exchange->model},
                                 {"others", exchange.exchange->others},
                                 {"lowest", exchange.lowest},
                                 {"highest", exchange.highest},
                                 {"multiples", multiples},
                                 {"mean", number(exchange.mean)},
                                 {"low", number(exchange.low)},
                                 {"high", number(exchange.high)}});
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
    for (const std::string& line : ExchangeLines(result, input.benches)) text += "\n" + line + "\n";
    if (!result.claims.empty()) text += "\n";
    for (const ClaimResult& outcome : result.claims)
      text += fmt::format("- **{}**: {}\n", VerdictName(outcome.verdict), ClaimLine(outcome));
    if (input.charts.empty()) continue;
    for (const Chart& chart : SweepCharts(result, input.benches)) {
      text += fmt::format("\n![{}]({}/{}.svg)\n", ChartTitle(chart), input.charts, ChartId(chart));
    }
  }
  if (input.other_run_count > 0) {
    text += fmt::format("\n## {}\n\n{}\n\n{}", kOtherRuns, OtherRunsText(input),
                        TableToMarkdown(input.other_runs));
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
    for (const std::string& line : ExchangeLines(result, input.benches))
      body += "<li>" + MarkdownToHtml(line) + "</li>\n";
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
  if (input.other_run_count > 0) {
    body += fmt::format("<section>\n<h2 id=\"other-runs\">{}</h2>\n<p>{}</p>\n{}</section>\n",
                        kOtherRuns, OtherRunsText(input), TableToHtml(input.other_runs));
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

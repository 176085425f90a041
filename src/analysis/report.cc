#include "analysis/report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "analysis/report_assets.h"
#include "analysis/study.h"
#include "analysis/svg.h"
#include "analysis/tradeoff.h"
#include "base/text.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 600;  // of a curve
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double Number(const Json& json, const std::vector<const char*>& path) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object()) return kNone;
    const auto found = at->find(key);
    if (found == at->end()) return kNone;
    at = &*found;
  }
  return at->is_number() ? at->get<double>() : kNone;
}

std::string Text(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "";
}

std::string Count(double value) {
  return std::isfinite(value) ? WithCommas(std::llround(value)) : "";
}

// A curve with at most kMostPoints points: means over stretches of equal length.
Series Thin(const std::string& name, const std::vector<double>& x, const std::vector<double>& y) {
  Series series{name, {}, {}, {}};
  const size_t stretch = (x.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < x.size(); begin += std::max<size_t>(stretch, 1)) {
    double sum_x = 0, sum_y = 0, n = 0;
    for (size_t i = begin; i < std::min(x.size(), begin + stretch); ++i) {
      if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
      sum_x += x[i];
      sum_y += y[i];
      ++n;
    }
    if (n == 0) continue;
    series.x.push_back(sum_x / n);
    series.y.push_back(sum_y / n);
  }
  return series;
}

struct Axis {
  const char* key;
  const char* label;
  std::vector<double> Curve::*member;
};
constexpr Axis kAxes[] = {{"steps", "step", &Curve::step},
                          {"tokens", "tokens", &Curve::tokens},
                          {"time", "seconds of training", &Curve::seconds}};

// Curves of all runs against one axis; nothing where no run recorded any.
std::vector<Chart> CurveCharts(const std::vector<RunData>& runs, const Axis& axis) {
  LineChart train{fmt::format("train-{}", axis.key),
                  "Training loss",
                  "Training loss, a line for each run.",
                  axis.label,
                  "loss",
                  {},
                  false};
  LineChart validation{fmt::format("validation-{}", axis.key),
                       "Validation loss",
                       "Validation loss during training, a line for each run.",
                       axis.label,
                       "loss",
                       {},
                       false};
  for (const RunData& run : runs) {
    if (!run.train_loss.value.empty()) {
      train.series.push_back(Thin(run.name, run.train_loss.*axis.member, run.train_loss.value));
    }
    if (!run.validation_loss.value.empty()) {
      validation.series.push_back(
          Thin(run.name, run.validation_loss.*axis.member, run.validation_loss.value));
    }
  }
  std::vector<Chart> charts;
  if (!train.series.empty()) charts.push_back(train);
  if (!validation.series.empty()) charts.push_back(validation);
  return charts;
}

std::vector<NamedStudy> StudiesOf(const std::vector<RunData>& runs, const std::string& name) {
  std::vector<NamedStudy> studies;
  for (const RunData& run : runs) {
    const auto found = run.studies.find(name);
    if (found != run.studies.end()) studies.push_back({run.name, found->second});
  }
  return studies;
}

std::string Figure(const Chart& chart) {
  return "<figure>" + DrawSvg(chart, /*standalone=*/false) + "</figure>\n";
}

std::string Figures(const std::vector<Chart>& charts) {
  std::string html = "<div class=\"charts\">\n";
  for (const Chart& chart : charts) html += Figure(chart);
  return html + "</div>\n";
}

std::string TableSection(const std::vector<ReportRow>& rows) {
  static constexpr const char* kHeads[] = {
      "Run",      "Model",         "Parameters",      "DWA weights",
      "Steps",    "Tokens",        "Validation loss", "Perplexity",
      "Accuracy", "Bits per byte", "Tokens/s",        "Time"};
  std::string best;
  double lowest = std::numeric_limits<double>::infinity();
  for (const ReportRow& row : rows) {
    if (!row.loss.empty() && std::stod(row.loss) < lowest) {
      lowest = std::stod(row.loss);
      best = row.loss;
    }
  }
  std::string html = "<h2 id=\"runs\">Runs</h2>\n<div class=\"scroll\"><table><thead><tr>";
  for (const char* head : kHeads) html += fmt::format("<th scope=\"col\">{}</th>", head);
  html += "</tr></thead><tbody>\n";
  for (const ReportRow& row : rows) {
    html += "<tr>";
    for (const std::string* cell :
         {&row.name, &row.model, &row.parameters, &row.dwa_weights, &row.steps, &row.tokens,
          &row.loss, &row.perplexity, &row.accuracy, &row.bits_per_byte, &row.rate, &row.time}) {
      const bool mark = cell == &row.loss && !best.empty() && row.loss == best;
      html += fmt::format("<td{}>{}</td>", mark ? " class=\"best\"" : "",
                          cell->empty() ? "–" : EscapeXml(*cell));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string CurveSection(const std::vector<RunData>& runs) {
  std::string html;
  bool first = true;
  for (const Axis& axis : kAxes) {
    const std::vector<Chart> charts = CurveCharts(runs, axis);
    if (charts.empty()) continue;
    html += fmt::format("<div data-tab=\"{}\"{}>{}</div>\n", axis.key, first ? "" : " hidden",
                        Figures(charts));
    first = false;
  }
  if (html.empty()) return "";
  std::string tabs = "<div class=\"tabs\" role=\"group\" aria-label=\"Axis of the curves\">";
  for (const Axis& axis : kAxes) {
    tabs += fmt::format("<button data-show=\"{0}\" aria-pressed=\"{1}\">by {0}</button>", axis.key,
                        &axis == kAxes ? "true" : "false");
  }
  return "<h2 id=\"curves\">Curves</h2>\n<p class=\"soft\">Point at a curve for its values; drag "
         "over a range to look "
         "closer, double-click to see all again.</p>\n" +
         tabs + "</div>\n" + html;
}

constexpr const char* kStudyTitles[][2] = {{"weights", "Depth weights"},
                                           {"evolution", "Evolution of the depth weights"},
                                           {"sources", "What each depth relies on"},
                                           {"cosine", "Similarity and norms by depth"},
                                           {"pruning", "Pruning the depth weights"},
                                           {"spectra", "Spectra of the weight matrices"}};

std::string StudySection(const std::vector<RunData>& runs) {
  std::string html;
  for (const auto& [name, title] : kStudyTitles) {
    const std::vector<NamedStudy> studies = StudiesOf(runs, name);
    if (studies.empty()) continue;
    html += fmt::format("<h2 id=\"{}\">{}</h2>\n", name, title);
    std::string list;
    for (const NamedStudy& study : studies) {
      for (const std::string& sentence : StudySentences(study.json)) {
        list += fmt::format("<li>{}: {}</li>\n", EscapeXml(study.run), EscapeXml(sentence));
      }
    }
    if (!list.empty()) html += "<ul>" + list + "</ul>\n";
    html += Figures(StudyCharts(studies));
  }
  return html;
}

std::string SampleSection(const std::vector<Sample>& samples) {
  if (samples.empty()) return "";
  std::string html = "<h2 id=\"samples\">Samples</h2>\n";
  for (const Sample& sample : samples) {
    html += fmt::format("<details open><summary>{}</summary><pre><b>{}</b>{}</pre></details>\n",
                        EscapeXml(sample.run), EscapeXml(sample.prompt), EscapeXml(sample.text));
  }
  return html;
}

std::string ConfigurationSection(const std::vector<RunData>& runs) {
  std::string html = "<h2 id=\"configuration\">Configuration</h2>\n";
  for (const RunData& run : runs) {
    html += fmt::format(
        "<details><summary>{}</summary><pre>{}</pre></details>\n", EscapeXml(run.name),
        EscapeXml(run.options.empty() ? "The run does not hold its options." : run.options));
  }
  return html;
}

}  // namespace

std::vector<ReportRow> ReportTable(const std::vector<RunData>& runs) {
  std::vector<ReportRow> rows;
  for (const RunData& run : runs) {
    const Json& s = run.summary;
    ReportRow row;
    row.name = run.name;
    row.model = Describe(run.config);
    row.parameters = Count(Number(s, {"parameters"}));
    row.dwa_weights = Count(Number(s, {"dwa_weights"}));
    row.steps = Count(Number(s, {"steps"}));
    row.tokens = Count(Number(s, {"tokens"}));
    row.loss = Text(Number(s, {"validation", "loss"}), "{:.4f}");
    row.perplexity = Text(Number(s, {"validation", "perplexity"}), "{:.3f}");
    row.accuracy = Text(100 * Number(s, {"validation", "accuracy"}), "{:.2f} %");
    row.bits_per_byte = Text(Number(s, {"validation", "bits_per_byte"}), "{:.4f}");
    row.rate = Count(Number(s, {"tokens_per_second"}));
    const double seconds = Number(s, {"seconds"});
    row.time = std::isfinite(seconds) ? HumanDuration(seconds) : "";
    rows.push_back(row);
  }
  return rows;
}

std::string ReportCsv(const std::vector<ReportRow>& rows) {
  std::string csv =
      "run,model,parameters,dwa_weights,steps,tokens,validation_loss,perplexity,accuracy,bits_per_"
      "byte,tokens_per_second,time\n";
  for (const ReportRow& row : rows) {
    std::string line;
    for (const std::string* cell :
         {&row.name, &row.model, &row.parameters, &row.dwa_weights, &row.steps, &row.tokens,
          &row.loss, &row.perplexity, &row.accuracy, &row.bits_per_byte, &row.rate, &row.time}) {
      std::string quoted;
      for (char c : *cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
      line += (line.empty() ? "\"" : ",\"") + quoted + "\"";
    }
    csv += line + "\n";
  }
  return csv;
}

std::vector<Chart> ReportCharts(const ReportInput& input) {
  std::vector<Chart> charts;
  auto add = [&](const std::vector<Chart>& more) {
    charts.insert(charts.end(), more.begin(), more.end());
  };
  for (const Axis& axis : kAxes) add(CurveCharts(input.runs, axis));
  add(TradeoffCharts(input.runs, input.benches));
  for (const char* name : kStudies) add(StudyCharts(StudiesOf(input.runs, name)));
  return charts;
}

std::string MakeReport(const ReportInput& input) {
  const std::vector<Chart> tradeoffs = TradeoffCharts(input.runs, input.benches);
  std::string body = TableSection(ReportTable(input.runs)) + CurveSection(input.runs);
  if (!tradeoffs.empty()) body += "<h2 id=\"tradeoffs\">Trade-offs</h2>\n" + Figures(tradeoffs);
  body +=
      StudySection(input.runs) + SampleSection(input.samples) + ConfigurationSection(input.runs);
  // Links to the sections that are there.
  std::string nav;
  for (size_t at = body.find("<h2 id=\""); at != std::string::npos;
       at = body.find("<h2 id=\"", at + 1)) {
    const size_t id = at + 8, id_end = body.find('"', id), text = body.find('>', at) + 1,
                 end = body.find("</h2>", text);
    nav += fmt::format("<a href=\"#{}\">{}</a>", body.substr(id, id_end - id),
                       body.substr(text, end - text));
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>DenseFormer report</title>\n"
      "<style>{}{}</style>\n</head>\n<body>\n<main>\n<h1>DenseFormer report</h1>\n<p "
      "class=\"soft\">{} run{}</p>\n"
      "<nav aria-label=\"Sections\">{}</nav>\n{}</main>\n<div id=\"tip\" "
      "role=\"status\"></div>\n<script>{}</script>\n</body>\n</html>\n",
      kReportStyle, ChartStyle(), input.runs.size(), input.runs.size() == 1 ? "" : "s", nav, body,
      kReportScript);
}

}  // namespace denseformer

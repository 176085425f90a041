#include "analysis/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/report_assets.h"
#include "analysis/study.h"
#include "analysis/tradeoff.h"
#include "chart/chart_style.h"
#include "chart/svg.h"

namespace denseformer {
namespace {

constexpr size_t kMostPoints = 150;  // of a curve: more cannot be seen

// Means over stretches of equal length, as many as can be seen.
Series Smoothed(const std::string& name, const std::vector<double>& x,
                const std::vector<double>& y) {
  Series series{name, {}, {}};
  const size_t stretch = std::max<size_t>(1, (x.size() + kMostPoints - 1) / kMostPoints);
  for (size_t begin = 0; begin < x.size(); begin += stretch) {
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

// y of a series at x, between its points by a straight line; NaN outside of them.
double ValueAt(const Series& series, double x) {
  const auto after = std::lower_bound(series.x.begin(), series.x.end(), x);
  if (after == series.x.end()) return NAN;
  const size_t i = static_cast<size_t>(after - series.x.begin());
  if (*after == x) return series.y[i];
  if (i == 0) return NAN;
  const double part = (x - series.x[i - 1]) / (series.x[i] - series.x[i - 1]);
  return series.y[i - 1] + part * (series.y[i] - series.y[i - 1]);
}

struct Axis {
  const char* key;
  const char* label;
  std::vector<double> Curve::*member;
};
constexpr Axis kAxes[] = {{"steps", "step", &Curve::step},
                          {"tokens", "tokens", &Curve::tokens},
                          {"time", "seconds of training", &Curve::seconds}};

// The loss of the other runs less that of the first, at the same place of the axis: differences
// that cannot be seen in the curves themselves.
LineChart DifferenceChart(const LineChart& validation, const Axis& axis) {
  const Series& first = validation.series.front();
  LineChart chart{fmt::format("difference-{}", axis.key),
                  fmt::format("Validation loss less that of {}", first.name),
                  fmt::format("Validation loss of each run less the loss of {} at the same place; "
                              "below 0 is better than it.",
                              first.name),
                  axis.label,
                  "difference in loss",
                  {},
                  false};
  for (const Series& series : validation.series) {
    Series difference{series.name, {}, {}};
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double base = ValueAt(first, series.x[i]);
      if (std::isnan(base)) continue;
      difference.x.push_back(series.x[i]);
      difference.y.push_back(series.y[i] - base);
    }
    chart.series.push_back(std::move(difference));
  }
  return chart;
}

// Curves of all runs against one axis; nothing where no run recorded any. A run without a curve
// keeps its colour.
std::vector<Chart> CurveCharts(const std::vector<RunData>& runs, const Axis& axis) {
  LineChart train{fmt::format("train-{}", axis.key),
                  "Training loss",
                  "Training loss, a line for each run; each point is the mean of a stretch of "
                  "steps.",
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
  bool any_train = false, any_validation = false;
  for (const RunData& run : runs) {
    const Curve &t = run.train_loss, &v = run.validation_loss;
    train.series.push_back(Smoothed(run.name, t.*axis.member, t.value));
    validation.series.push_back(Smoothed(run.name, v.*axis.member, v.value));
    any_train |= !train.series.back().x.empty();
    any_validation |= !validation.series.back().x.empty();
  }
  std::vector<Chart> charts;
  if (any_train) charts.push_back(train);
  if (any_validation) charts.push_back(validation);
  if (runs.size() > 1 && !validation.series.front().x.empty())
    charts.push_back(DifferenceChart(validation, axis));
  return charts;
}

// Runs of one depth and pattern (seeds) also get the mean of their weights.
void AddMeanWeights(std::vector<NamedStudy>& studies) {
  std::map<std::pair<int, std::string>, std::vector<NamedStudy>> groups;
  for (const NamedStudy& study : studies) {
    groups[{study.json.at("depth").get<int>(), study.json.value("pattern", "")}].push_back(study);
  }
  for (const auto& [model, group] : groups) {
    if (group.size() < 2) continue;
    studies.push_back(
        {fmt::format("{} blocks, {}", model.first, model.second), MeanWeights(group)});
  }
}

std::vector<NamedStudy> StudiesOf(const std::vector<RunData>& runs, const std::string& name) {
  std::vector<NamedStudy> studies;
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto found = runs[r].studies.find(name);
    if (found != runs[r].studies.end())
      studies.push_back({runs[r].name, found->second, static_cast<int>(r)});
  }
  if (name == "weights") AddMeanWeights(studies);
  return studies;
}

std::string Legend(const Chart& chart) {
  const std::vector<LegendEntry> legend = ChartLegend(chart);
  if (legend.empty()) return "";
  std::string html = "<ul class=\"legend\">";
  for (size_t n = 0; n < legend.size(); ++n) {
    html += fmt::format(
        "<li><button type=\"button\" class=\"{}\" data-series=\"{}\" aria-pressed=\"true\"><i></i>"
        "<span>{}</span></button></li>",
        SeriesClass(legend[n].colour), n, EscapeXml(legend[n].name));
  }
  return html + "</ul>";
}

std::string Figures(const std::vector<Chart>& charts) {
  std::string html = "<div class=\"charts\">\n";
  for (const Chart& chart : charts) {
    html += fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>\n",
                        EscapeXml(ChartTitle(chart)), DrawSvg(chart, /*standalone=*/false),
                        Legend(chart));
  }
  return html + "</div>\n";
}

std::string CurveSection(const std::vector<RunData>& runs) {
  std::string html, tabs;
  for (const Axis& axis : kAxes) {
    const std::vector<Chart> charts = CurveCharts(runs, axis);
    if (charts.empty()) continue;
    const bool first = tabs.empty();
    tabs += fmt::format(
        "<button type=\"button\" data-show=\"{0}\" aria-pressed=\"{1}\">by {0}</button>", axis.key,
        first ? "true" : "false");
    html += fmt::format("<div data-tab=\"{}\"{}>{}</div>\n", axis.key, first ? "" : " hidden=\"\"",
                        Figures(charts));
  }
  if (html.empty()) return "";
  return fmt::format(
      "<p class=\"soft\">Point at a curve for its values, drag over a range to look closer, "
      "double-click to see all again.</p>\n"
      "<div class=\"tabs\" role=\"group\" aria-label=\"Axis of the curves\">{}</div>\n{}",
      tabs, html);
}

struct StudyTitle {
  const char *name, *link, *title, *explanation;
};
constexpr StudyTitle kStudyTitles[] = {
    {"weights", "Weights", "Depth weights",
     "Weights of the depth-weighted average after each block. The colours end at the largest "
     "weight on an older output; a block's own output may have more."},
    {"evolution", "Evolution", "Evolution of the depth weights",
     "The weights on older outputs during training."},
    {"sources", "Sources", "What each depth relies on",
     "Share of each output in an average: size of its weight times its norm, over the sum of the "
     "module. The colours end at the largest share of an older output."},
    {"cosine", "Similarity", "Similarity and norms by depth",
     "X is the output of a block, Y what the next one reads; means over validation tokens."},
    {"pruning", "Pruning", "Pruning the depth weights",
     "Validation perplexity after setting the smallest weights of the averages to 0."},
    {"spectra", "Spectra", "Spectra of the weight matrices",
     "Singular values from the largest to the smallest, averaged over the blocks."}};

std::string StudyBody(const std::vector<NamedStudy>& studies, const char* explanation) {
  std::string list;
  for (const NamedStudy& study : studies) {
    const std::vector<std::string> sentences = StudySentences(study.json);
    if (sentences.empty()) continue;
    list += fmt::format("<li><b>{}:</b>", EscapeXml(study.run));
    for (const std::string& sentence : sentences) list += " " + EscapeXml(sentence);
    list += "</li>\n";
  }
  std::string html = fmt::format("<p class=\"soft\">{}</p>\n", explanation);
  if (!list.empty()) html += "<ul class=\"findings\">\n" + list + "</ul>\n";
  return html + Figures(StudyCharts(studies));
}

std::string SampleSection(const std::vector<Sample>& samples) {
  std::string html;
  for (const Sample& sample : samples) {
    html +=
        fmt::format("<details open=\"\"><summary>{}</summary><pre><b>{}</b>{}</pre></details>\n",
                    EscapeXml(sample.run), EscapeXml(sample.prompt), EscapeXml(sample.text));
  }
  return html.empty() ? "" : "<div class=\"samples\">\n" + html + "</div>\n";
}

// Sections and the links to them; a section without content is left out.
class Page {
 public:
  void Add(const std::string& id, const std::string& link, const std::string& title,
           const std::string& content) {
    if (content.empty()) return;
    body_ += fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n{}</section>\n", id, title, content);
    nav_ += fmt::format("<a href=\"#{}\">{}</a>", id, link);
  }

  std::string Html(const std::string& lead) const {
    // The policy keeps the page from asking for anything outside of itself.
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        "<title>DenseFormer report</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n"
        "<h1>DenseFormer report</h1>\n<p class=\"lead\">{}</p>\n"
        "<nav aria-label=\"Sections\">{}</nav>\n{}</main>\n"
        "<div id=\"tip\" role=\"status\" hidden></div>\n<script>{}</script>\n</body>\n</html>\n",
        kChartStyle, kReportStyle, lead, nav_, body_, kReportScript);
  }

 private:
  std::string nav_, body_;
};

}  // namespace

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
  Page page;
  page.Add("runs", "Runs", "Runs", ReportTableHtml(input.runs));
  page.Add("curves", "Curves", "Curves", CurveSection(input.runs));
  const std::vector<Chart> tradeoffs = TradeoffCharts(input.runs, input.benches);
  page.Add("tradeoffs", "Trade-offs", "Trade-offs", tradeoffs.empty() ? "" : Figures(tradeoffs));
  for (const auto& [name, link, title, explanation] : kStudyTitles) {
    const std::vector<NamedStudy> studies = StudiesOf(input.runs, name);
    page.Add(name, link, title, studies.empty() ? "" : StudyBody(studies, explanation));
  }
  page.Add("samples", "Samples", "Samples", SampleSection(input.samples));
  page.Add("configuration", "Configuration", "Configuration", ReportOptionsHtml(input.runs));
  std::string lead = fmt::format("{} run{}.", input.runs.size(), input.runs.size() == 1 ? "" : "s");
  for (const std::string& sentence : ReportSentences(input.runs)) lead += " " + EscapeXml(sentence);
  return page.Html(lead);
}

}  // namespace denseformer

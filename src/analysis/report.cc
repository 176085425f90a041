#include "analysis/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/report_assets.h"
#include "analysis/report_curves.h"
#include "analysis/study.h"
#include "analysis/tradeoff.h"
#include "chart/chart_style.h"
#include "chart/svg.h"

namespace denseformer {
namespace {

// The results of one study by run. Runs of one model (seeds) also get the mean of theirs.
std::vector<NamedStudy> StudiesOf(const std::vector<RunData>& runs, const Study& kind) {
  std::vector<NamedStudy> studies;
  std::map<std::pair<std::string, std::string>, std::vector<NamedStudy>> models;
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto found = runs[r].studies.find(kind.name);
    if (found == runs[r].studies.end()) continue;
    studies.push_back({runs[r].name, found->second, static_cast<int>(r)});
    models[{Describe(runs[r].config), runs[r].config.dwa}].push_back(studies.back());
  }
  if (kind.mean == nullptr) return studies;
  for (const auto& [model, group] : models) {
    if (group.size() > 1) studies.push_back({model.first, kind.mean(group)});
  }
  return studies;
}

// The legend of one chart whose lines are not the runs.
std::string Legend(const Chart& chart) {
  const auto* lines = std::get_if<LineChart>(&chart);
  if (lines == nullptr || lines->shared_legend) return "";
  const std::vector<LegendEntry> legend = ChartLegend(chart);
  std::string html = "<ul class=\"legend\">";
  for (size_t n = 0; n < legend.size(); ++n) {
    html += fmt::format(
        "<li><button type=\"button\" class=\"{}\" data-series=\"{}\" aria-pressed=\"true\"><i></i>"
        "<span>{}</span></button></li>",
        SeriesClass(legend[n].color), n, EscapeXml(legend[n].name));
  }
  return html + "</ul>";
}

// The legend of all charts: hides and shows a run everywhere.
std::string RunLegend(const std::vector<RunData>& runs) {
  std::string html = "<ul class=\"legend runs\" aria-label=\"Runs\">";
  for (size_t r = 0; r < runs.size(); ++r) {
    html += fmt::format(
        "<li><button type=\"button\" class=\"{}\" data-run=\"{}\" aria-pressed=\"true\"><i></i>"
        "<span>{}</span></button></li>",
        SeriesClass(r), r, EscapeXml(runs[r].name));
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

std::string Button(const char* attribute, const std::string& value, bool pressed,
                   const std::string& text) {
  return fmt::format("<button type=\"button\" {}=\"{}\" aria-pressed=\"{}\">{}</button>", attribute,
                     value, pressed, text);
}

// Axis, scales and smoothing of the curves; the script makes them work.
std::string CurveControls(const std::string& axes, bool seeds) {
  std::string html = fmt::format(
      "<div class=\"controls\">\n<div class=\"tabs\" role=\"group\" aria-label=\"Horizontal "
      "axis\">{}</div>\n<div class=\"switches\" role=\"group\" "
      "aria-label=\"Scales\">{}{}{}</div>\n",
      axes, Button("data-switch", "logx", false, "log x"),
      Button("data-switch", "logy", false, "log y"),
      seeds ? Button("data-switch", "bands", true, "seeds as bands") : "");
  return html +
         "<label class=\"smoothing\">smoothing <input type=\"range\" id=\"smoothing\" min=\"0\" "
         "max=\"0.99\" step=\"0.01\" value=\"0\"/><output for=\"smoothing\">0</output></label>\n"
         "</div>\n";
}

std::string CurveSection(const std::vector<RunData>& runs) {
  std::string html, tabs;
  for (const CurveAxis& axis : CurveAxes()) {
    const std::vector<Chart> charts = CurveCharts(runs, axis);
    if (charts.empty()) continue;
    const bool first = tabs.empty();
    tabs += Button("data-show", axis.key, first, fmt::format("by {}", axis.key));
    html += fmt::format("<div data-tab=\"{}\"{}>{}</div>\n", axis.key, first ? "" : " hidden=\"\"",
                        Figures(charts));
  }
  if (html.empty()) return "";
  return "<p class=\"soft\">Point at a curve for its values; drag over a range to zoom in, which "
         "shows "
         "more points; double-click to show everything.</p>\n" +
         CurveControls(tabs, !SeedGroups(runs).empty()) + html;
}

std::string StudyBody(const Study& kind, const std::vector<NamedStudy>& studies) {
  std::string list;
  for (const NamedStudy& study : studies) {
    const std::vector<std::string> sentences = kind.sentences(study.json);
    if (sentences.empty()) continue;
    list += fmt::format("<li><b>{}:</b>", EscapeXml(study.run));
    for (const std::string& sentence : sentences) list += " " + EscapeXml(sentence);
    list += "</li>\n";
  }
  std::string html = fmt::format("<p class=\"soft\">{}</p>\n", kind.help);
  if (!list.empty()) html += "<ul class=\"findings\">\n" + list + "</ul>\n";
  return html + Figures(kind.charts(studies));
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

  // `legend` stays in view beside the links; with `refresh` the page reloads itself after that many
  // seconds.
  std::string Html(const std::string& lead, const std::string& legend, int refresh) const {
    // The policy keeps the page from asking for anything outside of itself.
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"{}>\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        "<title>DenseFormer report</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n"
        "<h1>DenseFormer report</h1>\n<p class=\"lead\">{}</p>\n"
        "<header><nav aria-label=\"Sections\">{}</nav>\n{}</header>\n{}</main>\n"
        "<div id=\"tip\" role=\"status\" hidden></div>\n<script>{}</script>\n</body>\n</html>\n",
        refresh > 0 ? fmt::format(" data-refresh=\"{}\"", refresh) : "", kChartStyle, kReportStyle,
        lead, nav_, legend, body_, kReportScript);
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
  for (const CurveAxis& axis : CurveAxes()) add(CurveCharts(input.runs, axis));
  add(TradeoffCharts(input.runs, input.benches));
  for (const Study* kind : Studies()) {
    const std::vector<NamedStudy> studies = StudiesOf(input.runs, *kind);
    if (!studies.empty()) add(kind->charts(studies));
  }
  return charts;
}

std::string MakeReport(const ReportInput& input) {
  Page page;
  page.Add("runs", "Runs", "Runs", ReportTableHtml(input.runs));
  page.Add("curves", "Curves", "Curves", CurveSection(input.runs));
  const std::vector<Chart> tradeoffs = TradeoffCharts(input.runs, input.benches);
  page.Add("tradeoffs", "Trade-offs", "Trade-offs", tradeoffs.empty() ? "" : Figures(tradeoffs));
  for (const Study* kind : Studies()) {
    const std::vector<NamedStudy> studies = StudiesOf(input.runs, *kind);
    page.Add(kind->name, kind->link, kind->title, studies.empty() ? "" : StudyBody(*kind, studies));
  }
  page.Add("samples", "Samples", "Samples", SampleSection(input.samples));
  page.Add("configuration", "Configuration", "Configuration", ReportOptionsHtml(input.runs));
  std::string lead = fmt::format("{} run{}.", input.runs.size(), input.runs.size() == 1 ? "" : "s");
  for (const std::string& sentence : ReportSentences(input.runs)) lead += " " + EscapeXml(sentence);
  if (input.refresh > 0) lead += " Training continues; this page updates itself.";
  return page.Html(lead, RunLegend(input.runs), input.refresh);
}

}  // namespace denseformer

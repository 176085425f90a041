#include "cluster/cluster_chart.h"

#include <fmt/format.h>

#include "base/error.h"

namespace denseformer {
namespace {

enum Kind { kForward, kBackward, kShared, kGradients, kUpdate, kWeights };

}  // namespace

TimelineChart ScheduleChart(const Layout& layout, const std::string& name) {
  TimelineChart chart;
  chart.id = "schedule";
  chart.title = fmt::format("{}: {} x {} ranks, {} micro-batches", name, layout.shape.data_parallel,
                            layout.shape.pipeline, layout.micro_batches);
  chart.description =
      fmt::format("Passes of the stages of a step over time; {:.3g} s, of which {:.0f} % idle",
                  layout.step(), 100 * layout.timeline.bubble());
  chart.x_label = "seconds";
  chart.kinds = {"forward",
                 "backward",
                 "shared gradients",
                 "gradients of the copies",
                 "AdamW",
                 "weights of the copies"};
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    chart.rows.push_back(fmt::format("stage {}", s + 1));
  }
  for (const Timeline::Pass& pass : layout.timeline.passes) {
    const std::string number = std::to_string(pass.action.micro_batch + 1);
    chart.boxes.push_back({pass.stage, pass.action.forward ? kForward : kBackward, pass.begin,
                           pass.end, number,
                           (pass.action.forward ? "forward " : "backward ") + number});
  }
  const std::pair<Kind, double> after[] = {{kShared, layout.shared},
                                           {kGradients, layout.gradients},
                                           {kUpdate, layout.update},
                                           {kWeights, layout.weights}};
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    double at = layout.timeline.end;
    for (const auto& [kind, seconds] : after) {
      if (seconds > 0) {
        chart.boxes.push_back({static_cast<int>(s), kind, at, at + seconds, "", chart.kinds[kind]});
      }
      at += seconds;
    }
  }
  return chart;
}

LineChart StudyChart(const std::vector<nlohmann::ordered_json>& studies, const StudyAxis& axis) {
  LineChart chart;
  chart.id = "cluster";
  chart.title = axis.title;
  chart.description = axis.y_label + " against " + axis.x_label;
  chart.x_label = axis.x_label;
  chart.y_label = axis.y_label;
  chart.log_x = chart.log_y = true;
  chart.ticks_at_points = true;
  for (const nlohmann::ordered_json& study : studies) {
    Series series;
    try {
      series.name = study.at("name").get<std::string>();
      for (const nlohmann::ordered_json& row : study.at("rows")) {
        series.x.push_back(row.at(axis.x_key).get<double>());
        series.y.push_back(row.at(axis.y_key).get<double>() * axis.scale);
      }
    } catch (const nlohmann::json::exception&) {
      Throw(ErrorCode::kInvalid, "cluster: a study has no name, or a row without {} or {}",
            axis.x_key, axis.y_key);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace denseformer

#include "cluster/cluster_chart.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"

namespace denseformer {
namespace {

TEST(ClusterChartTest, DrawsEveryPassOfTheSchedule) {
  Layout layout;
  layout.shape = {1, 2, 1};
  layout.micro_batches = 3;
  layout.stages.resize(2);
  layout.timeline = SimulatePipeline({{1, 2}, {1, 2}}, {{0.1, 0.1, 0}}, 3);
  layout.update = 0.5;
  const TimelineChart chart = ScheduleChart(layout, "4x5");
  EXPECT_EQ(chart.boxes.size(), 2u * 3 * 2 + 2);
  EXPECT_EQ(chart.rows.size(), 2u);
  const std::string svg = DrawSvg(chart, /*standalone=*/true);
  EXPECT_NE(svg.find("stage 2, backward 3"), std::string::npos);
  EXPECT_NE(svg.find("4x5: 1 x 2 ranks, 3 micro-batches"), std::string::npos);
}

TEST(ClusterChartTest, ALinePerStudy) {
  const nlohmann::ordered_json study = {
      {"name", "1x1"},
      {"rows", {{{"ranks", 8}, {"step_seconds", 2.0}}, {{"ranks", 16}, {"step_seconds", 1.0}}}}};
  const LineChart chart = StudyChart({study}, {"ranks", "step_seconds", "ranks", "ms", "t", 1000});
  ASSERT_EQ(chart.series.size(), 1u);
  EXPECT_EQ(chart.series[0].name, "1x1");
  EXPECT_EQ(chart.series[0].y, (std::vector<double>{2000, 1000}));
  ExpectError(ErrorCode::kInvalid, "a row without ranks or nothing", [&] {
    StudyChart({study}, {"ranks", "nothing", "", "", "", 1});
  });
}

}  // namespace
}  // namespace denseformer

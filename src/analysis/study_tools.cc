#include "analysis/study_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "io/run_directory.h"
#include "train/train_data.h"
#include "train/trainer.h"

namespace denseformer {

StudyJson ToJson(double value) { return std::isfinite(value) ? StudyJson(value) : StudyJson(); }

StudyJson ToJson(const std::vector<double>& values) {
  StudyJson array = StudyJson::array();
  for (double value : values) array.push_back(ToJson(value));
  return array;
}

StudyJson ToJson(const DepthMatrix& matrix) {
  StudyJson array = StudyJson::array();
  for (const auto& row : matrix.value) array.push_back(ToJson(row));
  return array;
}

double Value(const StudyJson& value) { return value.is_number() ? value.get<double>() : kNoValue; }

std::vector<double> Values(const StudyJson& list) {
  std::vector<double> values;
  for (const StudyJson& value : list) values.push_back(Value(value));
  return values;
}

std::vector<std::vector<double>> Matrix(const StudyJson& rows) {
  std::vector<std::vector<double>> values;
  for (const StudyJson& row : rows) values.push_back(Values(row));
  return values;
}

Model LoadForStudy(const RunData& run) {
  return LoadModel(run.path, DType::kF32, ModelUse::kInference);
}

std::string ValidationPath(const RunData& run, const StudyOptions& options) {
  std::string directory = options.data;
  if (directory.empty()) {
    if (run.options.empty()) {
      Throw(ErrorCode::kInvalid,
            "{}: the run does not say what data it was trained on; give --data DIR", run.path);
    }
    directory = FindStoredData(run.path, "analyze");
  }
  return directory + "/" + kValidationFile;
}

std::string CsvNumber(const StudyJson& value) {
  return value.is_number() ? fmt::format("{}", value.get<double>()) : "";
}

std::string CsvColumns(const StudyJson& json, const std::string& index,
                       const std::vector<std::string>& keys) {
  std::string csv = index;
  for (const std::string& key : keys) csv += (csv.empty() ? "" : ",") + key;
  csv += "\n";
  for (size_t i = 0; i < json[keys[0]].size(); ++i) {
    std::string row = index.empty() ? "" : std::to_string(i);
    for (size_t k = 0; k < keys.size(); ++k)
      row += (k == 0 && index.empty() ? "" : ",") + CsvNumber(json[keys[k]][i]);
    csv += row + "\n";
  }
  return csv;
}

std::string ModuleCount(size_t count) {
  return fmt::format("{} module{}", count, count == 1 ? "" : "s");
}

std::vector<double> CountUp(size_t n, double first) {
  std::vector<double> numbers(n);
  for (size_t i = 0; i < n; ++i) numbers[i] = first + static_cast<double>(i);
  return numbers;
}

Series Thinned(Series series) {
  constexpr size_t kMostPoints = 160;
  const size_t n = series.x.size();
  if (n <= kMostPoints) return series;
  Series thin{series.name, {}, {}, series.color};
  for (size_t k = 0; k < kMostPoints; ++k) {
    const size_t i = k * (n - 1) / (kMostPoints - 1);
    thin.x.push_back(series.x[i]);
    thin.y.push_back(series.y[i]);
  }
  return thin;
}

std::vector<std::string> Slugs(const std::vector<NamedStudy>& studies) {
  std::vector<std::string> slugs;
  for (const NamedStudy& study : studies) {
    std::string slug;
    for (char c : study.run) slug += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
    const std::string base = slug;
    for (int n = 2; std::find(slugs.begin(), slugs.end(), slug) != slugs.end(); ++n)
      slug = fmt::format("{}-{}", base, n);
    slugs.push_back(slug);
  }
  return slugs;
}

HeatMap SourceMap(std::string id, std::string title, std::vector<std::vector<double>> values) {
  HeatMap map;
  map.id = std::move(id);
  map.title = std::move(title);
  map.x_label = "output that is read (0: embedding)";
  map.y_label = map.row_word = "after block";
  map.column_word = "output";
  double own = 0, older = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = 0; j < values[i].size(); ++j) {
      if (!std::isfinite(values[i][j])) continue;
      double& largest = i == j ? own : older;
      largest = std::max(largest, std::abs(values[i][j]));
    }
  }
  map.values = std::move(values);
  map.limit = std::max(older, 0.01 * own);
  return map;
}

LineChart OneLinePerRun(const std::vector<NamedStudy>& studies, LineChart chart, const char* x_key,
                        const char* y_key) {
  chart.shared_legend = true;
  for (const NamedStudy& study : studies) {
    Series series{study.run, {}, Values(study.json.at(y_key)), study.color};
    series.x = x_key == nullptr ? CountUp(series.y.size(), 0) : Values(study.json.at(x_key));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace denseformer

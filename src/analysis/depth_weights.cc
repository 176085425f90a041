#include "analysis/depth_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

DepthMatrix EmptyDepthMatrix(int depth) {
  return {depth,
          std::vector<std::vector<double>>(depth + 1, std::vector<double>(depth + 1, kNone))};
}

void RequireModules(const Model& model, const std::string& name) {
  if (model.pattern().module_count() > 0) return;
  Throw(ErrorCode::kInvalid,
        "{}: this model has no depth-weighted averages (model.dwa is none), so there are no "
        "weights to show",
        name);
}

DepthMatrix DepthWeights(const Model& model, const std::string& name) {
  const DepthPattern& pattern = model.pattern();
  RequireModules(model, name);
  if (!model.mixer().plain()) {
    Throw(
        ErrorCode::kUnsupported,
        "{}: mixer {} with streams {} has no single weight per source; the study mixing takes it, "
        "this one runs with model.mixer = static and model.streams = r",
        name, model.config().mixer, model.config().streams);
  }
  DepthMatrix matrix = EmptyDepthMatrix(pattern.depth());
  for (int i = 1; i <= pattern.depth(); ++i) {
    const std::vector<int>& sources = pattern.sources(i);
    for (size_t s = 0; s < sources.size(); ++s)
      matrix.value[i][sources[s]] = model.tensors().alphas[i].f32()[s];
  }
  return matrix;
}

DepthMean MeanDepthWeights(const std::vector<DepthMatrix>& runs,
                           const std::vector<std::string>& names) {
  DF_CHECK(!runs.empty() && runs.size() == names.size());
  const int depth = runs[0].depth;
  const double n = static_cast<double>(runs.size());
  DepthMean result{EmptyDepthMatrix(depth), EmptyDepthMatrix(depth), static_cast<int>(runs.size())};
  for (size_t r = 1; r < runs.size(); ++r) {
    if (runs[r].depth != depth) {
      Throw(ErrorCode::kInvalid,
            "weights of {} ({} blocks) and {} ({} blocks) cannot be averaged: the depths differ",
            names[0], depth, names[r], runs[r].depth);
    }
  }
  for (int i = 0; i <= depth; ++i) {
    for (int j = 0; j <= depth; ++j) {
      double sum = 0;
      for (size_t r = 0; r < runs.size(); ++r) {
        if (std::isnan(runs[r].value[i][j]) != std::isnan(runs[0].value[i][j])) {
          Throw(ErrorCode::kInvalid,
                "weights of {} and {} cannot be averaged: only one of them reads X_{} after block "
                "{} (the depth patterns differ)",
                names[0], names[r], j, i);
        }
        sum += runs[r].value[i][j];
      }
      const double mean = sum / n;
      double squares = 0;
      for (const DepthMatrix& run : runs)
        squares += (run.value[i][j] - mean) * (run.value[i][j] - mean);
      result.mean.value[i][j] = mean;
      result.standard_error.value[i][j] =
          runs.size() > 1 ? std::sqrt(squares / (n - 1) / n) : kNone;
    }
  }
  return result;
}

std::vector<std::vector<SourceShare>> SourceShares(const DepthMatrix& weights,
                                                   const std::vector<double>& norms) {
  std::vector<std::vector<SourceShare>> shares(weights.depth + 1);
  for (int i = 1; i <= weights.depth; ++i) {
    double total = 0;
    for (int j = 0; j <= i; ++j) {
      const double weight = weights.value[i][j];
      if (std::isnan(weight)) continue;
      const double size = std::abs(weight) * (norms.empty() ? 1.0 : norms[j]);
      shares[i].push_back({j, weight, size});
      total += size;
    }
    for (SourceShare& share : shares[i]) share.share = total > 0 ? share.share / total : 0;
    std::stable_sort(shares[i].begin(), shares[i].end(),
                     [](const SourceShare& a, const SourceShare& b) { return a.share > b.share; });
  }
  return shares;
}

}  // namespace denseformer

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "chart/chart.h"
#include "sweep/charts.h"
#include "sweep/document.h"
#include "sweep/metrics.h"

namespace denseformer {
namespace {

struct Heading {
  Verdict verdict;
  const char *title, *count;
};
constexpr Heading kHeadings[] = {
    {Verdict::kAgrees, "What holds", "hold"},
    {Verdict::kDisagrees, "What does not hold", "do not hold"},
    {Verdict::kNotResolved, "What is not resolved", "are not resolved"},
    {Verdict::kNotRun, "What was not run", "were not run"}};

constexpr const char* kReading =
    "Numbers are differences in validation loss between the two models named, with 95 % intervals "
    "over paired seeds and p after Holm's correction, unless another quantity is named.";

// Whether the mean points where the claim does.
bool Leans(const ClaimResult& outcome) {
  switch (outcome.claim->relation) {
    case Relation::kLess:
      return outcome.difference.mean < 0;
    case Relation::kGreater:
      return outcome.difference.mean > 0;
    case Relation::kEqual:
      return std::abs(outcome.difference.mean) < outcome.claim->margin;
  }
  return false;
}

// "-0.120 [-0.150, -0.090], p 0.004, 3 seeds".
std::string Numbers(const ClaimResult& outcome) {
  const PairedDifference& difference = outcome.difference;
  const Claim& claim = *outcome.claim;
  std::vector<std::string> parts;
  std::string value;
  if (const auto* number = std::get_if<double>(&claim.right)) {
    value = fmt::format("{} {:.3f}", MetricLabel(claim.metric), *number + difference.mean);
    if (difference.pairs > 1) {
      value +=
          fmt::format(" [{:.3f}, {:.3f}]", *number + difference.low, *number + difference.high);
    }
  } else {
    value = claim.metric == "loss" ? "" : MetricLabel(claim.metric) + " ";
    value += fmt::format("{:+.3f}", difference.mean);
    if (difference.pairs > 1) value += " " + Interval(difference);
  }
  parts.push_back(value);
  if (claim.relation == Relation::kEqual) {
    parts.push_back(fmt::format("margin {}", claim.margin));
  } else if (std::isfinite(outcome.holm_p)) {
    parts.push_back("p " + PText(outcome.holm_p));
  }
  parts.push_back(fmt::format("{} seed{}", difference.pairs, difference.pairs == 1 ? "" : "s"));
  return Join(parts, ", ");
}

std::string Bullet(const ClaimResult& outcome) {
  std::string text = "- " + outcome.claim->text;
  if (outcome.verdict == Verdict::kNotRun) return text + "\n";
  if (outcome.difference.pairs == 0) return text + " " + DivergedText(outcome) + ".\n";
  text += " " + Numbers(outcome);
  if (outcome.verdict == Verdict::kNotResolved) {
    text += Leans(outcome) ? "; the mean is on its side" : "; the mean is on the other side";
  }
  if (outcome.diverged > 0) text += "; " + DivergedText(outcome);
  return text + ".\n";
}

// "Of 31 claims 12 hold, 2 do not hold, ...".
std::string Summary(const DocumentInput& input) {
  std::map<Verdict, int> counts;
  int all = 0;
  for (const SweepResult& result : input.results) {
    for (const ClaimResult& outcome : result.claims) {
      ++counts[outcome.verdict];
      ++all;
    }
  }
  std::vector<std::string> parts;
  for (const Heading& heading : kHeadings) {
    if (counts[heading.verdict] > 0)
      parts.push_back(fmt::format("{} {}", counts[heading.verdict], heading.count));
  }
  return fmt::format("{}. Of {} claims {}.", Provenance(input.results), all, Join(parts, ", "));
}

// The table and the curves of the main part.
std::string MainPart(const DocumentInput& input) {
  const auto found =
      std::find_if(input.results.begin(), input.results.end(),
                   [](const SweepResult& result) { return !result.file->baseline.empty(); });
  if (found == input.results.end()) return "";
  std::string text = fmt::format("\n### {}\n\n{}", found->file->title,
                                 TableToMarkdown(ResultTable(*found, input.benches)));
  if (input.charts.empty()) return text;
  for (const Chart& chart : SweepCharts(*found, input.benches))
    text += fmt::format("\n![{}]({}/{}.svg)\n", ChartTitle(chart), input.charts, ChartId(chart));
  return text;
}

}  // namespace

std::string FindingsToMarkdown(const DocumentInput& input) {
  std::string text = fmt::format("## {}\n\n{}\n\n{} {}\n", input.title, input.introduction,
                                 Summary(input), kReading);
  text += MainPart(input);
  for (const Heading& heading : kHeadings) {
    std::string list;
    for (const SweepResult& result : input.results) {
      std::string bullets;
      for (const ClaimResult& outcome : result.claims) {
        if (outcome.verdict == heading.verdict) bullets += Bullet(outcome);
      }
      if (!bullets.empty()) list += fmt::format("\n{}:\n\n{}", result.file->title, bullets);
    }
    if (!list.empty()) text += fmt::format("\n### {}\n{}", heading.title, list);
  }
  return text;
}

}  // namespace denseformer

#include "sweep/other_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "sweep/metrics.h"

namespace denseformer {
namespace {

constexpr size_t kMostCharacters = 40;  // of a value; masks have thousands

// The options that every run of the ledger has with the same value.
LedgerJson SharedOptions(const Ledger& ledger) {
  LedgerJson shared = ledger.rows().empty() ? LedgerJson::object() : ledger.rows()[0]["options"];
  for (const LedgerJson& row : ledger.rows()) {
    LedgerJson kept = LedgerJson::object();
    for (const auto& [key, value] : shared.items()) {
      if (row["options"].contains(key) && row["options"][key] == value) kept[key] = value;
    }
    shared = kept;
  }
  return shared;
}

// "model.dwa = 1x1, optimizer.lr = 0.015"
std::string OptionsText(const LedgerJson& options, const LedgerJson& shared) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : options.items()) {
    if (shared.contains(key)) continue;
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text.size() > kMostCharacters) text = text.substr(0, kMostCharacters) + "...";
    parts.push_back(key + " = " + text);
  }
  return parts.empty() ? "defaults" : Join(parts, ", ");
}

struct Group {
  const LedgerJson* first;
  std::vector<std::string> seeds;
  std::vector<double> losses;
  int diverged = 0, failed = 0;
};

}  // namespace

std::vector<const LedgerJson*> OtherRuns(const Ledger& ledger,
                                         const std::vector<SweepResult>& results) {
  std::set<const LedgerJson*> used;
  for (const SweepResult& result : results) {
    for (const RowResult& row : result.rows) used.insert(row.runs.begin(), row.runs.end());
  }
  std::vector<const LedgerJson*> others;
  for (const LedgerJson& row : ledger.rows()) {
    if (!used.contains(&row)) others.push_back(&row);
  }
  return others;
}

TextTable OtherRunsTable(const Ledger& ledger, const std::vector<const LedgerJson*>& runs) {
  std::vector<Group> groups;
  for (const LedgerJson* run : runs) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return (*group.first)["options"] == (*run)["options"] &&
             (*group.first)["data"] == (*run)["data"];
    });
    if (found == groups.end()) found = groups.insert(groups.end(), Group{run, {}, {}, 0, 0});
    found->seeds.push_back(std::to_string((*run)["seed"].get<int64_t>()));
    if ((*run)["status"] == "finished") found->losses.push_back(MetricOf("loss", *run));
    found->diverged += (*run)["status"] == "diverged";
    found->failed += (*run)["status"] == "failed";
  }
  const LedgerJson shared = SharedOptions(ledger);
  TextTable table{{"options", "data", "seeds", "loss"}, {}};
  for (const Group& group : groups) {
    std::vector<std::string> results;
    for (const double loss : group.losses) results.push_back(fmt::format("{:.3f}", loss));
    if (group.diverged > 0) results.push_back(fmt::format("{} diverged", group.diverged));
    if (group.failed > 0) results.push_back(fmt::format("{} failed", group.failed));
    table.rows.push_back({OptionsText((*group.first)["options"], shared),
                          (*group.first)["data"].get<std::string>(), Join(group.seeds, ", "),
                          Join(results, ", ")});
  }
  return table;
}

}  // namespace denseformer

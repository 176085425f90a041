#include "sweep/plan.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "analysis/study.h"
#include "base/error.h"
#include "model/summary.h"

namespace denseformer {
namespace {

// Letters and digits; the rest becomes one '-'.
std::string Slug(const std::string& text) {
  std::string slug;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) {
      slug += c;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

// A backward pass costs two forward passes.
double TrainingWork(const TrainOptions& options) {
  const auto flops =
      static_cast<double>(ForwardFlops(options.model, options.model.seq_len).total());
  return 3 * flops * static_cast<double>(options.steps) * options.batch_size *
         options.model.seq_len;
}

// The studies that the model of a run can have, each once: one without depth-weighted averages has
// no weights to study.
void AddStudies(const SweepRow& row, PlannedRun& run) {
  RunData model;
  model.config = run.options.model;
  model.alphas.resize(1);  // a run of a sweep always records its weights
  for (const std::string& study : row.studies) {
    const bool known =
        std::find(run.studies.begin(), run.studies.end(), study) != run.studies.end();
    if (!known && FindStudy(study)->available(model)) run.studies.push_back(study);
  }
}

// Options of a row of the ledger.
TrainOptions OptionsOfRow(const LedgerJson& row) {
  TrainOptions options;
  for (const auto& [key, value] : row["options"].items()) {
    FindOption("ledger", key)
        .set(options, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return options;
}

}  // namespace

std::vector<PlannedRun> AllRuns(const std::vector<SweepFile>& files, const DataSets& data) {
  std::vector<PlannedRun> runs;
  std::map<std::string, size_t> by_key;
  size_t most_seeds = 0;
  for (const SweepFile& file : files) {
    for (const SweepRow& row : file.rows) most_seeds = std::max(most_seeds, row.seeds.size());
  }
  for (size_t s = 0; s < most_seeds; ++s) {
    for (const SweepFile& file : files) {
      for (const SweepRow& row : file.rows) {
        if (s >= row.seeds.size()) continue;
        PlannedRun run;
        run.options = row.OptionsOf(row.seeds[s]);
        run.data = row.data;
        run.key = RunKey(run.options, row.data);
        if (const auto found = by_key.find(run.key); found != by_key.end()) {
          AddStudies(row, runs[found->second]);
          continue;
        }
        run.name = fmt::format("{}-{}-s{}", file.id, Slug(row.name), row.seeds[s]);
        if (const auto found = data.find(row.data); found != data.end())
          run.options.data = found->second;
        AddStudies(row, run);
        run.work = TrainingWork(run.options);
        run.seconds = std::numeric_limits<double>::quiet_NaN();
        by_key[run.key] = runs.size();
        runs.push_back(std::move(run));
      }
    }
  }
  return runs;
}

std::vector<PlannedRun> MissingRuns(const std::vector<PlannedRun>& runs, const Ledger& ledger,
                                    bool retry_failed) {
  std::vector<PlannedRun> missing;
  for (const PlannedRun& run : runs) {
    const LedgerJson* row = ledger.Find(run.key);
    PlannedRun needed = run;
    if (row != nullptr) {
      if ((*row)["status"] != "finished" && !retry_failed) continue;
      const LedgerJson studies = row->value("studies", LedgerJson::object());
      std::erase_if(needed.studies,
                    [&](const std::string& name) { return studies.contains(name); });
      if ((*row)["status"] == "finished" && needed.studies.empty()) continue;
    }
    missing.push_back(std::move(needed));
  }
  return missing;
}

void EstimateSeconds(const Ledger& ledger, std::vector<PlannedRun>& runs) {
  std::map<int, std::vector<double>> rates;  // by width
  std::vector<double> all;
  for (const LedgerJson& row : ledger.rows()) {
    if (row["status"] != "finished" || !row.contains("tokens_per_second")) continue;
    const TrainOptions options = OptionsOfRow(row);
    const double tokens =
        static_cast<double>(options.steps) * options.batch_size * options.model.seq_len;
    const double rate = TrainingWork(options) / tokens * row["tokens_per_second"].get<double>();
    rates[options.model.n_embd].push_back(rate);
    all.push_back(rate);
  }
  for (PlannedRun& run : runs) {
    const auto found = rates.find(run.options.model.n_embd);
    std::vector<double> known = found == rates.end() ? all : found->second;
    if (known.empty()) continue;
    std::nth_element(known.begin(), known.begin() + static_cast<ptrdiff_t>(known.size() / 2),
                     known.end());
    run.seconds = run.work / known[known.size() / 2];
  }
}

}  // namespace denseformer

// The results of sweeps for readers: tables, Markdown, one HTML page, JSON. All come from sweep
// files, ledger and stored benchmarks alone, so that they are the same on every machine.
#ifndef DENSEFORMER_SWEEP_DOCUMENT_H_
#define DENSEFORMER_SWEEP_DOCUMENT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sweep/results.h"
#include "sweep/text_table.h"

namespace denseformer {

using Benches = std::vector<nlohmann::ordered_json>;

// One row per row of the file; columns without any value are left out.
TextTable ResultTable(const SweepResult& result, const Benches& benches);

// The claims with verdict and numbers, one per line, without markup.
std::vector<std::string> ClaimLines(const SweepResult& result);

// What gains are worth in steps and training time, a sentence for each exchange.
std::vector<std::string> ExchangeLines(const SweepResult& result, const Benches& benches);

nlohmann::ordered_json ResultToJson(const SweepResult& result, const Benches& benches);

struct DocumentInput {
  std::string title, introduction;
  std::vector<SweepResult> results;
  TextTable other_runs;  // of the ledger, that no table uses (other_runs.h)
  int other_run_count = 0;
  Benches benches;
  std::string charts;  // folder of the drawings, relative to the document: "paper"; "" for none
};

// "0.012", "< 0.001"; "" where there is none.
std::string PText(double p);
// "[-0.120, +0.034]"; "" for a single pair.
std::string Interval(const PairedDifference& difference);
// What a document says of a claim about rows of which a run diverged; "" where none did.
std::string DivergedText(const ClaimResult& outcome);
// How many runs the results use, with their CPUs and versions.
std::string Provenance(const std::vector<SweepResult>& results);

// Sections with table, verdicts and links to the drawings (CHARTS/ID.svg).
std::string DocumentToMarkdown(const DocumentInput& input);
// The same with the drawings inside; needs no network.
std::string DocumentToHtml(const DocumentInput& input);
// What holds, what does not, what is not resolved, what was not run: every claim once, after the
// table and the curves of the first part that has a baseline.
std::string FindingsToMarkdown(const DocumentInput& input);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_DOCUMENT_H_

// The ledger of a sweep: a file with one JSON object per line, one line for each run that is done.
// It can be committed; tables and charts are made from it alone.
//
//   {"key", "data", "seed", "status", "options", ...}
//     key       names the run: a hash of the options below, the seed and the data set
//     data      name of the data set; "train_data", "validation_data" are the hashes of its files
//     options   the options that decide the course of a run, where they differ from the defaults
//     status    "finished"; "diverged": loss or gradient stayed not finite; "failed": see "error"
//     loss, perplexity, accuracy, validation_tokens   over the whole validation stream at the end
//     parameters, dwa_weights, steps, tokens, skipped_steps
//     tokens_per_second, seconds, threads, cpu, cpu_name, version
//     curve     {"step", "loss"}: validations during training
//     studies   {NAME: numbers} (studies.h)
//   {"key", "studies"}   studies that were added to a run later
//
// A line is appended by one write and synced. What a killed writer left incomplete is cut off by
// the next one.
#ifndef DENSEFORMER_SWEEP_LEDGER_H_
#define DENSEFORMER_SWEEP_LEDGER_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/options.h"

namespace denseformer {

using LedgerJson = nlohmann::ordered_json;

// Names a run whatever the machine, the directory and the order of options. An option that is added
// to the program later changes no key as long as its default means what was done before.
std::string RunKey(const TrainOptions& options, const std::string& data);

// The options that RunKey looks at, the seed apart.
LedgerJson CourseOptions(const TrainOptions& options);

class Ledger {
 public:
  // Reads the file; one that is missing is empty. Throws kCorrupt with the line where a row is not
  // what a ledger has, or a run occurs twice with different results.
  explicit Ledger(std::string path);

  // The row of a run, its studies merged; null where there is none. Valid until the next Append.
  const LedgerJson* Find(const std::string& key) const;
  // Durable when it returns. The caller is the only writer.
  void Append(const LedgerJson& row);
  // In the order of the file, one for each run.
  const std::vector<LedgerJson>& rows() const { return rows_; }
  const std::string& path() const { return path_; }

 private:
  void Add(const LedgerJson& row, const std::string& where);

  std::string path_;
  std::vector<LedgerJson> rows_;
  std::map<std::string, size_t> by_key_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_LEDGER_H_

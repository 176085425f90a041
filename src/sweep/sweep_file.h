// A sweep file: rows of a table (each a set of training options, run once per seed), what the paper
// has for them, claims to be tested, charts to be drawn.
//
//   title = "Table 1"          scales = "scales.toml"     baseline = "Transformer"
//   seeds = [1, 2, 3]          data = "novels"            studies = ["weights"]
//   [options]                  options of all rows, as in a file of `denseformer train --config`
//   [[row]]                    name, options, paper, note, seeds, data, studies, only
//   [[grid]]                   name = "{dwa}, rate {lr}", axes = { dwa = [...], lr = [...] }, and
//                              all that a row has: one row for each combination
//   [[claim]]                  text, metric, and one of less = [A, B], greater = [A, B],
//                              equal = [A, B] with margin; B is the name of a row or a number
//   [[exchange]]               model = A, others = [B, ...]: how many steps of B, which are runs of
//                              one model with different numbers of steps, reach the loss of A
//   [[chart]]                  kind, title, rows, x, series (charts.h)
//
// `scales` names a file of tables, one per scale: [SCALE.options] are options of all rows, every
// other entry is a variable. A value "$name", or "$name * 1.5", stands for a variable of the scale
// anywhere in the sweep file, so that one file serves all scales.
//
// docs/sweep.md describes each key.
#ifndef DENSEFORMER_SWEEP_SWEEP_FILE_H_
#define DENSEFORMER_SWEEP_SWEEP_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/options.h"

namespace denseformer {

struct SweepRow {
  std::string name;
  Assignments options;  // those of the scale, the file and the row, later ones win
  std::string preset;   // "" for the default
  std::string data;     // name of a data set
  std::vector<int64_t> seeds;
  std::vector<std::string> studies;
  std::optional<double> paper;  // the paper's figure
  std::string note;

  // Options of the run with one seed; data.path is left empty.
  TrainOptions OptionsOf(int64_t seed) const;
};

enum class Relation { kLess, kGreater, kEqual };

struct Claim {
  std::string text;
  std::string metric;  // metrics.h
  Relation relation = Relation::kLess;
  std::string left;
  std::variant<std::string, double> right;  // a row, or a number
  double margin = 0;                        // of kEqual
};

// Names of rows (exchange.h).
struct Exchange {
  std::string model;
  std::vector<std::string> others;
};

struct SweepChart {
  std::string kind, title;
  std::vector<std::string> rows;  // all where empty
  std::string x, series;          // of kinds "option" and "speed"
};

struct SweepFile {
  std::string path, id;  // id: the name of the file without folder and suffix
  std::string title, text, baseline;
  std::string scale_title, scale_text;  // variables of the scale, where it has them
  std::vector<SweepRow> rows;
  std::vector<Claim> claims;
  std::vector<Exchange> exchanges;
  std::vector<SweepChart> charts;

  // Throws kInvalid where there is none; `where` begins the message.
  const SweepRow& Row(std::string_view where, const std::string& name) const;
};

// Throws kNotFound and kInvalid with file and line: wrong syntax, unknown keys, unknown variables
// and scales, names given twice, claims and charts about rows that do not exist, options that
// contradict each other. `scale` may be "" where the file has none.
SweepFile ReadSweepFile(const std::string& path, const std::string& scale);

// Tests may give the text.
SweepFile ParseSweepFile(std::string_view text, const std::string& path, const std::string& scale);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_SWEEP_FILE_H_

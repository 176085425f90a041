#include "sweep/ledger.h"

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "train/json_lines.h"

namespace denseformer {
namespace {

constexpr const char* kStatuses[] = {"finished", "diverged", "failed"};

bool IsStatus(const std::string& status) {
  for (const char* known : kStatuses) {
    if (status == known) return true;
  }
  return false;
}

// What tables and documents read of a row must have its type, where it is there.
void CheckFields(const LedgerJson& row, bool finished, const std::string& where) {
  for (const char* key : {"loss", "perplexity"}) {
    if (finished && (!row.contains(key) || !row[key].is_number())) {
      Throw(ErrorCode::kCorrupt, "{}: a finished run needs a {}", where, key);
    }
  }
  for (const char* key : {"parameters", "dwa_weights", "tokens_per_second"}) {
    if (row.contains(key) && !row[key].is_number()) {
      Throw(ErrorCode::kCorrupt, "{}: {}: expected a number", where, key);
    }
  }
  for (const char* key : {"cpu", "cpu_name", "version", "error"}) {
    if (row.contains(key) && !row[key].is_string()) {
      Throw(ErrorCode::kCorrupt, "{}: {}: expected text", where, key);
    }
  }
}

// A row of a run, as opposed to studies that were added later.
void CheckRun(const LedgerJson& row, const std::string& where) {
  const auto text = [&](const char* key) { return row.contains(key) && row[key].is_string(); };
  if (!text("data") || !text("status") || !row.contains("options") || !row["options"].is_object() ||
      !row.contains("seed") || !row["seed"].is_number_integer()) {
    Throw(ErrorCode::kCorrupt, "{}: expected a run with data, seed, status and options", where);
  }
  const std::string status = row["status"];
  if (!IsStatus(status)) {
    Throw(ErrorCode::kCorrupt, "{}: got status '{}', expected finished, diverged or failed", where,
          status);
  }
  CheckFields(row, status == "finished", where);
  TrainOptions options;
  try {
    for (const auto& [key, value] : row["options"].items()) {
      FindOption("options", key)
          .set(options, value.is_string() ? value.get<std::string>() : value.dump());
    }
  } catch (const Error& error) {
    Throw(ErrorCode::kCorrupt, "{}: {}", where, error.what());
  }
  options.seed = row["seed"].get<int64_t>();
  const std::string key = RunKey(options, row["data"]);
  if (row["key"] != key) {
    Throw(ErrorCode::kCorrupt, "{}: the key is '{}', but options, seed and data give '{}'", where,
          row["key"].get<std::string>(), key);
  }
}

}  // namespace

LedgerJson CourseOptions(const TrainOptions& options) {
  static const TrainOptions defaults;
  LedgerJson json = LedgerJson::object();
  for (const OptionRow& row : TrainOptionTable()) {
    if (!row.course || row.key == "train.seed") continue;
    const std::string value = row.get(options);
    // Values are written as TOML, which for numbers, strings and truth values is JSON as well.
    if (value != row.get(defaults)) json[row.key] = LedgerJson::parse(value);
  }
  return json;
}

std::string RunKey(const TrainOptions& options, const std::string& data) {
  // Sorted, so that the order of the table does not matter.
  const nlohmann::json identity = {
      {"data", data}, {"seed", options.seed}, {"options", nlohmann::json(CourseOptions(options))}};
  const std::string text = identity.dump();
  return HashBytes(text.data(), text.size()).substr(0, 16);
}

Ledger::Ledger(std::string path) : path_(std::move(path)) {
  if (!FileExists(path_)) return;
  int line = 0;
  std::set<std::string> lines;
  for (const LedgerJson& row : ReadJsonLines(path_)) {
    ++line;
    const std::string where = fmt::format("{}:{}", path_, line);
    if (!row.contains("key") || !row["key"].is_string()) {
      Throw(ErrorCode::kCorrupt, "{}: expected a key", where);
    }
    // What a merge of two copies of a ledger leaves; a run with two results stays an error.
    if (!lines.insert(row.dump()).second) continue;
    if (row.contains("status")) CheckRun(row, where);
    Add(row, where);
  }
}

void Ledger::Add(const LedgerJson& row, const std::string& where) {
  const std::string key = row["key"];
  const auto found = by_key_.find(key);
  if (row.contains("status")) {
    if (found != by_key_.end() && rows_[found->second]["status"] == "finished") {
      Throw(ErrorCode::kCorrupt, "{}: the run {} has a result already", where, key);
    }
    // A failed run that was tried again.
    if (found != by_key_.end()) {
      rows_[found->second] = row;
      return;
    }
    by_key_[key] = rows_.size();
    rows_.push_back(row);
    return;
  }
  if (found == by_key_.end() || !row.contains("studies")) {
    Throw(ErrorCode::kCorrupt, "{}: studies of an unknown run", where);
  }
  for (const auto& [name, study] : row["studies"].items())
    rows_[found->second]["studies"][name] = study;
}

const LedgerJson* Ledger::Find(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &rows_[found->second];
}

void Ledger::Append(const LedgerJson& row) {
  if (row.contains("status")) CheckRun(row, path_);
  Add(row, path_);
  if (FileExists(path_)) {
    const std::string text = ReadFile(path_);
    const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole < text.size()) TruncateFile(path_, whole);
  }
  OutputFile out(path_, /*append=*/true);
  out.Write(row.dump(-1, ' ', false, LedgerJson::error_handler_t::replace) + "\n");
  out.Sync();
  out.Close();
}

}  // namespace denseformer

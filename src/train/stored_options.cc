#include "train/stored_options.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "io/checkpoint.h"
#include "io/run_directory.h"
#include "io/seal.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

// `path` without links and dots; as far as it exists.
fs::path Real(const std::string& path) { return fs::weakly_canonical(fs::absolute(path)); }

[[noreturn]] void NothingToResume(const std::string& run) {
  const std::string found = FileExists(run) ? FindRun(run) : run;
  if (FileExists(found + "/" + kOptionsFile)) {
    Throw(ErrorCode::kUsage, "train: {} is a checkpoint; give its run, {}", run, found);
  }
  if (FileExists(run + "/" + kModelFile)) {
    Throw(ErrorCode::kNotFound,
          "train: nothing to resume at {}: it holds weights but no training (no {}); train from "
          "them in a new directory: 'denseformer train NEW --init {}'",
          run, kOptionsFile, run);
  }
  Throw(ErrorCode::kNotFound, "train: nothing to resume at {} (no {}); start it without --resume",
        run, kOptionsFile);
}

}  // namespace

void WriteStoredOptions(const std::string& run, const TrainOptions& options) {
  TrainOptions stored = options;
  std::string from_run;
  if (!options.data.empty()) {
    stored.data = fs::absolute(options.data).lexically_normal().string();
    from_run = Real(options.data).lexically_relative(Real(run)).string();
  }
  WriteFileAtomic(run + "/" + kOptionsFile, SealLines(ToToml(stored, from_run)));
}

TrainOptions ReadStoredOptions(const std::string& run) {
  CheckNoFile(run);
  const std::string path = run + "/" + kOptionsFile;
  if (!FileExists(path)) NothingToResume(run);
  std::string from_run;
  TrainOptions options = ParseStoredOptions(ReadFile(path), path, &from_run);
  if (!from_run.empty() && !FileExists(options.data)) {
    const std::string beside = (Real(run) / from_run).lexically_normal().string();
    if (FileExists(beside)) options.data = beside;
  }
  return options;
}

std::string FindStoredData(const std::string& run, const std::string& who) {
  if (!FileExists(run + "/" + kOptionsFile)) return "";
  const std::string data = ReadStoredOptions(run).data;
  if (!data.empty() && !FileExists(data)) {
    Throw(ErrorCode::kNotFound, "{}: the data of {} are not at {} any more; give --data DIR", who,
          run, data);
  }
  return data;
}

}  // namespace denseformer

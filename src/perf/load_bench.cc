// Loading a model for inference, with the check of its hash, against reading its file once; the
// file is in the system's cache. What nobody can save, taking as much memory from the system, is a
// row of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "io/import_export.h"
#include "io/run_directory.h"
#include "io/safetensors.h"
#include "model/summary.h"
#include "perf/model_bench.h"
#include "tensor/precision.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

// A directory for one run, removed at the end.
class ScratchDirectory {
 public:
  ScratchDirectory() : path_(std::filesystem::temp_directory_path() / "denseformer-bench-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ThrowErrno(errno, "cannot make a directory {}", path_);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Reads all of a file on all threads into memory that stays in cache.
void ReadWholeFile(const std::string& path, int64_t size) {
  constexpr int64_t kPiece = 1 << 18;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) ThrowErrno(errno, "cannot open {}", path);
  ParallelFor((size + kPiece - 1) / kPiece, /*grain=*/16, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> buffer(kPiece);
    for (int64_t at = begin * kPiece; at < std::min(size, end * kPiece);) {
      const ssize_t got = pread(file, buffer.data(), buffer.size(), at);
      if (got <= 0) break;  // the file is ours: nobody truncates it
      at += got;
    }
  });
  close(file);
}

StoredType StoredTypeOf(WeightFormat format) {
  return format == WeightFormat::kF32    ? StoredType::kF32
         : format == WeightFormat::kBF16 ? StoredType::kBF16
                                         : StoredType::kI8;
}

}  // namespace

BenchTable BenchLoad(const BenchOptions& options) {
  const Precision precision = ParsePrecision(options.precision);
  const WeightFormat format = FormatOf(precision);
  const ModelConfig config = ModelConfig::Preset(options.preset);
  RequireMemory("writing the model's file",
                InferenceMemory(config, WeightFormat::kF32, /*sequences=*/1, /*length=*/1).total(),
                "take a smaller --preset");
  const ScratchDirectory scratch;
  const std::string run = scratch / "run", path = run + "/model.safetensors";
  ExportModel(RandomModel(config, DType::kF32, ModelUse::kInference), run, ExportFormat::kNative,
              StoredTypeOf(format), /*tokenizer=*/"");
  const int64_t size = static_cast<int64_t>(FileSize(path));
  const std::vector<Variant> variants = {
      {"read the file once", [&] { ReadWholeFile(path, size); }},
      {"take as much memory", [&] { Storage(static_cast<size_t>(size)); }},
      {"check its hash", [&] { SafetensorsFile(path).VerifyHash(); }},
      {"load the model", [&] { LoadFrozen(run, precision); }}};
  BenchTable table = MakeTable("loading a model", Interleave(variants, options.interleave),
                               static_cast<double>(size), "B");
  table.settings = {{"preset", options.preset},
                    {"precision", WeightFormatName(format)},
                    {"file", HumanBytes(static_cast<double>(size))},
                    {"threads", std::to_string(NumThreads())}};
  for (size_t row = 1; row < table.rows.size(); ++row) table.rows[row].limit = 0;
  return table;
}

}  // namespace denseformer

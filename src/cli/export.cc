// denseformer export: the weights of a run for other programs.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "io/import_export.h"
#include "io/run_directory.h"

namespace denseformer {
namespace {

struct ExportCall {
  std::string run, directory, checkpoint, type = "fp32", format = "native";
};

void RunExport(const ExportCall& call, const CommonOptions& common) {
  const Model model = LoadModel(call.run, DType::kF32, ModelUse::kInference, call.checkpoint);
  const std::string tokenizer_path = FindRun(call.run) + "/tokenizer.json";
  const std::string tokenizer = FileExists(tokenizer_path) ? ReadFile(tokenizer_path) : "";
  ExportModel(model, call.directory,
              call.format == "authors" ? ExportFormat::kAuthors : ExportFormat::kNative,
              call.type == "bf16" ? StoredType::kBF16 : StoredType::kF32, tokenizer);
  const uint64_t bytes = FileSize(call.directory + "/model.safetensors");
  if (common.json) {
    PrintJson({{"directory", call.directory},
               {"format", call.format},
               {"type", call.type},
               {"parameters", model.table().count()},
               {"bytes", bytes}});
    return;
  }
  Print("{}/model.safetensors: {} parameters, {}, {}\n", call.directory,
        WithCommas(model.table().count()), call.type, HumanBytes(static_cast<double>(bytes)));
}

}  // namespace

void AddExport(CLI::App& app, CommonOptions& common) {
  auto call = std::make_shared<ExportCall>();
  app.add_option("RUN", call->run, "Run directory")->required();
  app.add_option("-o,--output", call->directory, "Directory to make")->required();
  app.add_option("--dtype", call->type, "Type of the weights: fp32 or bf16")
      ->check(OneOf({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--format", call->format,
                 "native: safetensors and config.json; authors: safetensors with the names of the "
                 "DenseFormer authors' script and summary.json")
      ->check(OneOf({"native", "authors"}))
      ->capture_default_str();
  app.add_option("--checkpoint", call->checkpoint,
                 "last, best or a step; default: the run's model.safetensors");
  app.footer(
      "Examples:\n"
      "  denseformer export runs/dense -o out/dense --dtype bf16\n"
      "  denseformer export runs/dense --checkpoint best --format authors -o out/authors");
  SetWork(app, common, call, [&common](const ExportCall& c) { RunExport(c, common); });
}

}  // namespace denseformer

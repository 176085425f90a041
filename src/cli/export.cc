// denseformer export: the weights of a run for other programs.
#include <algorithm>
#include <iterator>
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

struct FormatRow {
  const char* name;
  ExportFormat format;
  const char* help;
};
constexpr FormatRow kFormats[] = {
    {"native", ExportFormat::kNative, "safetensors and config.json"},
    {"authors", ExportFormat::kAuthors,
     "safetensors with the names of the DenseFormer authors' script and summary.json"},
    {"huggingface", ExportFormat::kHuggingFace,
     "a directory for transformers: from_pretrained(DIR, trust_remote_code=True)"},
};

const FormatRow& FindFormat(const std::string& name) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats),
                       [&](const FormatRow& row) { return row.name == name; });
}

struct ExportCall {
  std::string run, directory, checkpoint, type = "fp32", format = "native";
};

void RunExport(const ExportCall& call, const CommonOptions& common) {
  const Model model = LoadModel(call.run, DType::kF32, ModelUse::kInference, call.checkpoint);
  const std::string tokenizer_path = FindRun(call.run) + "/tokenizer.json";
  const std::string tokenizer = FileExists(tokenizer_path) ? ReadFile(tokenizer_path) : "";
  ExportModel(model, call.directory, FindFormat(call.format).format,
              call.type == "int8"   ? StoredType::kI8
              : call.type == "bf16" ? StoredType::kBF16
                                    : StoredType::kF32,
              tokenizer);
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
  AddOutput(app, call->directory, "Directory to write; must not exist or be empty")->required();
  app.add_option("--dtype,--precision", call->type,
                 "Type of the weights: fp32, bf16, or int8 with a scale per row (native only)")
      ->check(OneOf({"fp32", "bf16", "int8"}))
      ->capture_default_str();
  std::vector<std::string> names, help;
  for (const FormatRow& row : kFormats) {
    names.emplace_back(row.name);
    help.push_back(fmt::format("{}: {}", row.name, row.help));
  }
  app.add_option("--format", call->format, Join(help, "; "))
      ->check(OneOf(names))
      ->capture_default_str();
  app.add_option("--checkpoint", call->checkpoint,
                 "last, best or a step; default: the run's model.safetensors");
  app.footer(
      "Examples:\n"
      "  denseformer export runs/dense -o out/dense --dtype bf16\n"
      "  denseformer export runs/dense -o out/small --precision int8\n"
      "  denseformer export runs/dense --checkpoint best --format authors -o out/authors\n"
      "  denseformer export runs/dense --format huggingface -o out/hub");
  SetWork(app, common, call, [&common](const ExportCall& c) { RunExport(c, common); });
}

}  // namespace denseformer

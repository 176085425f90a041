// denseformer import: a model of another program becomes a run.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "data/tokenizer_files.h"
#include "denseformer/tokenizer.h"
#include "io/import_export.h"
#include "io/run_directory.h"
#include "model/depth_forms.h"

namespace denseformer {
namespace {

struct ImportCall {
  ImportOptions options;
  std::string run, tokenizer;
};

// The text of tokenizer.json for the run, checked; "" where there is none.
std::string TokenizerText(const ImportCall& call, const ImportedModel& imported) {
  if (call.tokenizer.empty() && imported.tokenizer.empty()) return "";
  const std::string path = call.tokenizer.empty() ? imported.tokenizer : call.tokenizer;
  const Tokenizer tokenizer = Tokenizer::Load(path);
  const int vocab_size = imported.model.config().vocab_size;
  if (tokenizer.vocab_size() > vocab_size) {
    Throw(ErrorCode::kInvalid,
          "import: {} has {} tokens, but the model's vocabulary has {}; give its own by "
          "--tokenizer FILE",
          path, tokenizer.vocab_size(), vocab_size);
  }
  return WriteTokenizerJson(ReadTokenizerFiles(path));
}

void RunImport(const ImportCall& call, const CommonOptions& common) {
  if (FileExists(call.run + "/config.json")) {
    Throw(ErrorCode::kInvalid, "import: {} holds a run already; choose another directory",
          call.run);
  }
  const ImportedModel imported = ImportModel(call.options);
  CreateRun(call.run, imported.model, TokenizerText(call, imported));
  const ModelConfig& config = imported.model.config();
  const ParameterTable& table = imported.model.table();
  if (common.json) {
    PrintJson({{"run", call.run},
               {"parameters", table.count()},
               {"n_layer", config.n_layer},
               {"n_head", config.n_head},
               {"n_embd", config.n_embd},
               {"vocab_size", config.vocab_size},
               {"seq_len", config.seq_len},
               {"dwa", config.dwa},
               {"gains", config.gains},
               {"identity_averages", imported.identity.size()}});
    return;
  }
  Print("{}: {} blocks, width {}, {} heads, vocabulary {}, {} parameters, dwa {}{}\n", call.run,
        config.n_layer, config.n_embd, config.n_head, WithCommas(config.vocab_size),
        WithCommas(table.count()), config.dwa, config.gains ? ", gains" : "");
  if (!imported.identity.empty()) {
    Print("{} averages set to the identity: it computes what the Transformer did\n",
          imported.identity.size());
  }
}

}  // namespace

void AddImport(CLI::App& app, CommonOptions& common) {
  auto call = std::make_shared<ImportCall>();
  app.add_option("PATH", call->options.path,
                 "PyTorch file (.pt), safetensors file, or a directory that holds one; nothing in "
                 "it is executed")
      ->required();
  AddOutput(app, call->run, "Run directory to create")->required();
  app.add_option("--dwa", call->options.dwa,
                 "Depth pattern (" + DepthFormList() +
                     "): makes a plain Transformer a DenseFormer with identity weights");
  app.add_option("--config", call->options.config,
                 "JSON of the configuration; default: summary.json or config.json beside the file");
  app.add_option("--set", call->options.sets, "A value of the configuration, such as n_head=12")
      ->allow_extra_args(false);
  app.add_option("--tokenizer", call->tokenizer,
                 "Tokenizer to put into the run; default: tokenizer.json beside the file");
  app.footer(
      "Examples:\n"
      "  denseformer import exps/denseformer/ckpt.pt -o runs/authors\n"
      "  denseformer import base/ -o runs/dense --dwa 4x5\n"
      "  denseformer import model.safetensors --set n_head=12 --set seq_len=256 -o runs/other");
  SetWork(app, common, call, [&common](const ImportCall& c) { RunImport(c, common); });
}

}  // namespace denseformer

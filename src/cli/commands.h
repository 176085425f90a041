// The table of commands, in the order in which --help lists them.
#ifndef DENSEFORMER_CLI_COMMANDS_H_
#define DENSEFORMER_CLI_COMMANDS_H_

#include "cli/command.h"

namespace denseformer {

void AddAnalyze(CLI::App& app, CommonOptions& common);
void AddBench(CLI::App& app, CommonOptions& common);
void AddCluster(CLI::App& app, CommonOptions& common);
void AddCompletion(CLI::App& app, CommonOptions& common);
void AddData(CLI::App& app, CommonOptions& common);
void AddDoctor(CLI::App& app, CommonOptions& common);
void AddEval(CLI::App& app, CommonOptions& common);
void AddExport(CLI::App& app, CommonOptions& common);
void AddGenerate(CLI::App& app, CommonOptions& common);
void AddImport(CLI::App& app, CommonOptions& common);
void AddInfo(CLI::App& app, CommonOptions& common);
void AddMan(CLI::App& app, CommonOptions& common);
void AddReport(CLI::App& app, CommonOptions& common);
void AddSearch(CLI::App& app, CommonOptions& common);
void AddServe(CLI::App& app, CommonOptions& common);
void AddSweep(CLI::App& app, CommonOptions& common);
void AddTokenizer(CLI::App& app, CommonOptions& common);
void AddTrain(CLI::App& app, CommonOptions& common);

inline constexpr Command kCommands[] = {
    {"info", "What a model is: parameters, depth pattern, FLOPs, memory", AddInfo},
    {"tokenizer", "Learn, import and use a byte-level BPE tokenizer", AddTokenizer},
    {"data", "Turn text into token files, and inspect token files", AddData},
    {"train", "Train a model, with checkpoints to resume from", AddTrain},
    {"eval", "Loss, perplexity and accuracy of a run over a token stream", AddEval},
    {"generate", "Text from a trained model", AddGenerate},
    {"serve", "A trained model over HTTP, with OpenAI's interface and a page", AddServe},
    {"analyze", "The paper's studies of trained models: weights, similarity, pruning, spectra",
     AddAnalyze},
    {"report", "One HTML page that compares runs: tables, curves, heat maps, samples", AddReport},
    {"sweep", "Experiments: trains a grid of runs, and makes tables and charts of them", AddSweep},
    {"search", "Which few depth weights of a trained model are worth keeping: a mask file",
     AddSearch},
    {"bench", "How fast kernels and passes are, and how close to the limits", AddBench},
    {"doctor", "What this machine has, how fast it is, and what to change if it is slow",
     AddDoctor},
    {"cluster", "Plans training on several machines: memory, traffic, time, the best layout",
     AddCluster},
    {"import", "Turn a PyTorch or safetensors checkpoint into a run", AddImport},
    {"export", "The weights of a run as safetensors for other programs", AddExport},
    {"completion", "A script that completes commands and options in bash or zsh", AddCompletion},
    {"man", "The manual page, as troff", AddMan},
};

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_COMMANDS_H_

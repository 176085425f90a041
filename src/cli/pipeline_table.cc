#include "cli/pipeline_table.h"

#include <string>
#include <vector>

#include "base/text.h"
#include "cli/output.h"
#include "model/cut_plan.h"

namespace denseformer {

nlohmann::ordered_json PipelineToJson(const ModelConfig& config, const DepthPattern& pattern,
                                      int stages, DType compute) {
  nlohmann::ordered_json cuts = nlohmann::ordered_json::array();
  for (const Cut& cut : PlanCuts(pattern, EvenCuts(config.n_layer, stages))) {
    std::vector<int> modules;
    for (const PartialSum& sum : cut.sums) modules.push_back(sum.module);
    cuts.push_back({{"after_block", cut.block},
                    {"tensors", cut.tensors()},
                    {"sources", cut.sources},
                    {"partial_sums", modules},
                    {"tensors_as_sources", cut.all_sources},
                    {"tensors_as_sums", cut.all_sums},
                    {"bytes_per_token", cut.bytes_per_token(config.n_embd, compute)},
                    {"backward_bytes_per_token", cut.backward_bytes_per_token(config.n_embd)}});
  }
  return {{"stages", stages}, {"cuts", cuts}};
}

void PrintPipeline(const ModelConfig& config, const DepthPattern& pattern, int stages,
                   DType compute) {
  Print("pipeline of {} stages: tensors per cut besides the stream, and bytes per token\n", stages);
  Print("  {:>11}{:>9}{:>14}{:>9}{:>13}{:>10}{:>10}{:>10}\n", "after block", "sources",
        "partial sums", "tensors", "all sources", "all sums", "forward", "backward");
  for (const Cut& cut : PlanCuts(pattern, EvenCuts(config.n_layer, stages))) {
    Print("  {:>11}{:>9}{:>14}{:>9}{:>13}{:>10}{:>10}{:>10}\n", cut.block, cut.sources.size(),
          cut.sums.size(), cut.tensors(), cut.all_sources, cut.all_sums,
          WithCommas(cut.bytes_per_token(config.n_embd, compute)),
          WithCommas(cut.backward_bytes_per_token(config.n_embd)));
  }
}

}  // namespace denseformer

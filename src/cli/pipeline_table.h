// info --pipeline: what crosses the cuts between the stages of a pipeline.
#ifndef DENSEFORMER_CLI_PIPELINE_TABLE_H_
#define DENSEFORMER_CLI_PIPELINE_TABLE_H_

#include <nlohmann/json.hpp>

#include "denseformer/config.h"
#include "denseformer/depth_pattern.h"
#include "tensor/dtype.h"

namespace denseformer {

nlohmann::ordered_json PipelineToJson(const ModelConfig& config, const DepthPattern& pattern,
                                      int stages, DType compute);
void PrintPipeline(const ModelConfig& config, const DepthPattern& pattern, int stages,
                   DType compute);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_PIPELINE_TABLE_H_

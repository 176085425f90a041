// How the stream changes with depth: cosine similarity with the embedding, and norms.
#ifndef DENSEFORMER_ANALYSIS_SIMILARITY_H_
#define DENSEFORMER_ANALYSIS_SIMILARITY_H_

#include <cstdint>
#include <vector>

#include "data/token_file.h"
#include "model/model.h"

namespace denseformer {

// Means over tokens, for i = 0..d.
struct DepthSimilarity {
  int64_t tokens = 0;
  std::vector<double> cosine_y;  // of Y_i with X_0; 0 where a vector is 0
  std::vector<double> norm_x;    // of X_i
  std::vector<double> norm_y;    // of Y_i
};

// Over the first `most_tokens` tokens of the file, in windows of the model's length.
DepthSimilarity MeasureSimilarity(const Model& model, const TokenFile& file, int64_t most_tokens);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_SIMILARITY_H_

// train.init: a run that starts from the weights of another model instead of random ones.
//
// The source is a run, one of its checkpoints, an import or an export. Its Transformer must be the
// one to train; the averages may be others, as long as the first step computes what the source
// computes: a plain Transformer starts with the weights that pass X_i on, and modules that read
// more than those of the source start with the source's weights, and 0 for what is new.
#ifndef DENSEFORMER_TRAIN_INIT_H_
#define DENSEFORMER_TRAIN_INIT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "denseformer/tokenizer.h"
#include "model/model.h"

namespace denseformer {

// The configuration of the weights at `path`. Throws kNotFound, kInvalid and so on where there are
// none.
ModelConfig InitConfig(const std::string& path);

// Throws kUsage where a model of `config` cannot start from one of `source`; `path` is for the
// message.
void CheckInit(const ModelConfig& source, const ModelConfig& config, const std::string& path);

// The tokenizer of a run that starts from `path`: that of the weights, which the data must have as
// well where they have one, or that of the data. Throws kInvalid where both have one and they
// differ.
std::optional<Tokenizer> InitTokenizer(const std::string& path,
                                       const std::optional<Tokenizer>& data_tokenizer);

// Fills `model` from the weights at `path` after CheckInit; what they lack starts as it does in a
// new model of this seed.
void InitializeFrom(const std::string& path, uint64_t seed, Model& model);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_INIT_H_

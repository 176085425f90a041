// The parameters of a model in safetensors files.
#ifndef DENSEFORMER_IO_WEIGHTS_H_
#define DENSEFORMER_IO_WEIGHTS_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "denseformer/config.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "model/parameters.h"

namespace denseformer {

// A buffer with the layout of a table, and what stands before each parameter's name in the file.
struct NamedBuffer {
  std::string prefix;
  float* data = nullptr;
};

// All parameters of `table`, for WriteSafetensors.
std::vector<TensorToWrite> TensorsOf(const ParameterTable& table, const NamedBuffer& buffer,
                                     StoredType type = StoredType::kF32);

// The same with quantized matrices, each followed by the scales of its rows; everything else is
// F32. `scales` must live as long as the result.
std::vector<TensorToWrite> Int8TensorsOf(const ParameterTable& table, const NamedBuffer& buffer,
                                         std::vector<std::vector<float>>& scales);

// Metadata of a file of weights: "format", "model_type", and the text of config.json as "config".
std::map<std::string, std::string> WeightsMetadata(const ModelConfig& config);

// Compares the hash of the content where the file has one; files of this program always have.
void VerifyWeights(const SafetensorsFile& file);

// Throws kInvalid where the metadata of `file` hold the configuration of another model; the message
// names each field that differs. A file of another program has none, and passes.
void CheckSameModel(const SafetensorsFile& file, const ModelConfig& config);

// Fills all buffers; the elements between tensors become 0. `file` must hold exactly the parameters
// of the table for each buffer, with the same shapes: kInvalid names those missing, extra or
// misshaped, before anything is changed.
void ReadWeights(const SafetensorsFile& file, const ParameterTable& table,
                 std::span<const NamedBuffer> buffers);

// Fills a frozen model from `file`, a few rows at a time; what was read need not stay in memory.
// The same demands as of ReadWeights.
void ReadFrozenWeights(const SafetensorsFile& file, Model& model);

// Whether matrices in `file` are quantized.
bool HasInt8(const SafetensorsFile& file, const ParameterTable& table);

// "a; b; c; and 7 more", for messages about many things.
std::string FirstOf(const std::vector<std::string>& problems);

// Dimensions of a parameter as files give them.
std::vector<int64_t> DimsOf(const Shape& shape);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_WEIGHTS_H_

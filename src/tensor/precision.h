// The precision of matrix multiplications: names as users write them, and what `auto` means here.
#ifndef DENSEFORMER_TENSOR_PRECISION_H_
#define DENSEFORMER_TENSOR_PRECISION_H_

#include <string>
#include <string_view>
#include <vector>

#include "denseformer/model.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace denseformer {

// The names that ParsePrecision takes, for training: "auto", "fp32", "bf16".
std::vector<std::string> PrecisionNames();
// And for inference: "int8" as well.
std::vector<std::string> InferencePrecisionNames();

// Throws kUsage for any other name.
Precision ParsePrecision(std::string_view name);

// The element type that GEMMs read. kAuto is bf16 where this CPU multiplies it faster than fp32.
// Throws kUsage for kInt8, which only frozen weights have.
DType ComputeType(Precision precision);

// How a frozen model holds its matrices.
WeightFormat FormatOf(Precision precision);

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_PRECISION_H_

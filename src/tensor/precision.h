// The precision of matrix multiplications: names as users write them, and what `auto` means here.
#ifndef DENSEFORMER_TENSOR_PRECISION_H_
#define DENSEFORMER_TENSOR_PRECISION_H_

#include <string>
#include <string_view>
#include <vector>

#include "denseformer/model.h"
#include "tensor/dtype.h"

namespace denseformer {

// The names that ParsePrecision takes: "auto", "fp32", "bf16".
std::vector<std::string> PrecisionNames();

// Throws kUsage for any other name.
Precision ParsePrecision(std::string_view name);

// The element type that GEMMs read. kAuto is bf16 where this CPU multiplies it faster than fp32.
DType ComputeType(Precision precision);

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_PRECISION_H_

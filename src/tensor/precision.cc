#include "tensor/precision.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

struct Row {
  const char* name;
  Precision precision;
};
constexpr Row kRows[] = {{"auto", Precision::kAuto},
                         {"fp32", Precision::kFp32},
                         {"bf16", Precision::kBf16},
                         {"int8", Precision::kInt8}};

}  // namespace

std::vector<std::string> PrecisionNames() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.precision != Precision::kInt8) names.push_back(row.name);
  }
  return names;
}

std::vector<std::string> InferencePrecisionNames() {
  std::vector<std::string> names = PrecisionNames();
  names.push_back("int8");
  return names;
}

Precision ParsePrecision(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.precision;
  }
  Throw(ErrorCode::kUsage, "precision: got '{}', expected {}", name,
        Join(InferencePrecisionNames(), ", "));
}

DType ComputeType(Precision precision) {
  if (precision == Precision::kInt8) {
    Throw(ErrorCode::kUsage, "precision: got 'int8', which is for inference; expected {}",
          Join(PrecisionNames(), ", "));
  }
  const bool bf16 = precision == Precision::kAuto ? HasFastBf16() : precision == Precision::kBf16;
  return bf16 ? DType::kBF16 : DType::kF32;
}

WeightFormat FormatOf(Precision precision) {
  return precision == Precision::kInt8 ? WeightFormat::kInt8 : FormatOf(ComputeType(precision));
}

}  // namespace denseformer

// The names that a pickle may mention. None of them is ever called.
#include <algorithm>

#include "base/error.h"
#include "io/pickle.h"

namespace denseformer {
namespace {

struct Row {
  std::string_view module;  // ending with '.': every module below it
  std::string_view name;    // empty: every name
  GlobalRole role;
};

constexpr Row kGlobals[] = {
    {"collections", "OrderedDict", GlobalRole::kDictType},
    {"collections", "defaultdict", GlobalRole::kDictType},
    {"torch._utils", "_rebuild_tensor_v2", GlobalRole::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v3", GlobalRole::kRebuildTensor},
    {"torch._utils", "_rebuild_parameter", GlobalRole::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", GlobalRole::kRebuildParameter},
    {"torch", "Size", GlobalRole::kSize},
    {"torch", "DoubleStorage", GlobalRole::kStorage},
    {"torch", "FloatStorage", GlobalRole::kStorage},
    {"torch", "HalfStorage", GlobalRole::kStorage},
    {"torch", "BFloat16Storage", GlobalRole::kStorage},
    {"torch", "LongStorage", GlobalRole::kStorage},
    {"torch", "IntStorage", GlobalRole::kStorage},
    {"torch", "ShortStorage", GlobalRole::kStorage},
    {"torch", "CharStorage", GlobalRole::kStorage},
    {"torch", "ByteStorage", GlobalRole::kStorage},
    {"torch", "BoolStorage", GlobalRole::kStorage},
    {"torch.storage", "UntypedStorage", GlobalRole::kStorage},
    {"torch.storage", "_UntypedStorage", GlobalRole::kStorage},
    {"torch", "float64", GlobalRole::kDtype},
    {"torch", "float32", GlobalRole::kDtype},
    {"torch", "float16", GlobalRole::kDtype},
    {"torch", "bfloat16", GlobalRole::kDtype},
    {"torch", "int64", GlobalRole::kDtype},
    {"torch", "int32", GlobalRole::kDtype},
    {"torch", "int16", GlobalRole::kDtype},
    {"torch", "int8", GlobalRole::kDtype},
    {"torch", "uint64", GlobalRole::kDtype},
    {"torch", "uint32", GlobalRole::kDtype},
    {"torch", "uint16", GlobalRole::kDtype},
    {"torch", "uint8", GlobalRole::kDtype},
    {"torch", "bool", GlobalRole::kDtype},
    {"torch", "device", GlobalRole::kOpaqueType},
    // Optimizers and schedulers: OneCycleLR of PyTorch before 2.1 saves itself with its optimizer.
    {"torch.optim.", "", GlobalRole::kOpaqueType},
    {"__builtin__", "getattr", GlobalRole::kGetAttr},
    {"builtins", "getattr", GlobalRole::kGetAttr},
    {"__builtin__", "dict", GlobalRole::kOpaqueType},
    {"builtins", "dict", GlobalRole::kOpaqueType},
    {"__builtin__", "set", GlobalRole::kOpaqueType},
    {"builtins", "set", GlobalRole::kOpaqueType},
    // States of random generators, and the arguments of a script.
    {"numpy", "ndarray", GlobalRole::kOpaqueType},
    {"numpy", "dtype", GlobalRole::kOpaqueType},
    {"numpy.core.multiarray", "_reconstruct", GlobalRole::kOpaqueType},
    {"numpy.core.multiarray", "scalar", GlobalRole::kOpaqueType},
    {"numpy._core.multiarray", "_reconstruct", GlobalRole::kOpaqueType},
    {"numpy._core.multiarray", "scalar", GlobalRole::kOpaqueType},
    {"_codecs", "encode", GlobalRole::kOpaqueType},
    {"argparse", "Namespace", GlobalRole::kOpaqueType},
};

bool Matches(const Row& row, std::string_view module, std::string_view name) {
  const bool prefix = row.module.back() == '.';
  return (prefix ? module.starts_with(row.module) : module == row.module) &&
         (row.name.empty() || row.name == name);
}

}  // namespace

GlobalRole RoleOfGlobal(std::string_view module, std::string_view name, const std::string& where) {
  for (const Row& row : kGlobals) {
    if (Matches(row, module, name)) return row.role;
  }
  Throw(ErrorCode::kInvalid,
        "{}: the pickle asks for '{}.{}', which is not part of weights; refused, and nothing was "
        "executed",
        where, module, name);
}

}  // namespace denseformer

#include "tensor/tensor.h"

#include <fmt/ranges.h>

namespace denseformer {

std::string Shape::ToString() const {
  return fmt::format("[{}]", fmt::join(dims_.begin(), dims_.begin() + rank_, ", "));
}

}  // namespace denseformer

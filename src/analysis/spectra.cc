#include "analysis/spectra.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/parallel.h"

namespace denseformer {
namespace {

// G = A^T A (or A A^T, whichever is smaller) has the squares of the singular values as eigenvalues;
// in double precision on fp32 data that costs no accuracy that a figure could show, and a 50,304 x
// 768 embedding becomes a 768 x 768 problem.
std::vector<double> GramMatrix(const Tensor& matrix, int64_t& order) {
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  const float* a = matrix.f32();
  const bool by_columns = cols <= rows;
  order = std::min(rows, cols);
  std::vector<double> gram(static_cast<size_t>(order * order));
  ParallelFor(order, 1, [&](int64_t begin, int64_t end, int) {
    if (!by_columns) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < cols; ++k)
            sum += static_cast<double>(a[i * cols + k]) * a[j * cols + k];
          gram[i * order + j] = sum;
        }
      }
      return;
    }
    for (int64_t k = 0; k < rows; ++k) {
      const float* row = a + k * cols;
      for (int64_t i = begin; i < end; ++i) {
        const double factor = row[i];
        double* to = gram.data() + i * order;
        for (int64_t j = 0; j <= i; ++j) to[j] += factor * row[j];
      }
    }
  });
  return gram;
}

// LAPACKE_dsyevd: layout, job, triangle, order, matrix, leading dimension, eigenvalues.
using Dsyevd = int (*)(int, char, char, int, double*, int, double*);
constexpr int kRowMajor = 101;

// LAPACK is loaded here and not with the program: OpenBLAS, which may stand behind it, starts its
// threads at once, with 128 MB each, and where memory is limited they never end, nor does the
// program.
Dsyevd LoadDsyevd() {
  // So that --threads holds there, too.
  setenv("OPENBLAS_NUM_THREADS", std::to_string(NumThreads()).c_str(), /*replace=*/0);
  constexpr const char* kLibrary = "liblapacke.so.3";
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  void* const function = library != nullptr ? dlsym(library, "LAPACKE_dsyevd") : nullptr;
  if (function == nullptr) {
    Throw(ErrorCode::kUnsupported,
          "singular values: cannot load {} (install Debian's liblapacke): {}", kLibrary, dlerror());
  }
  return reinterpret_cast<Dsyevd>(function);
}

}  // namespace

std::vector<double> SingularValues(const Tensor& matrix) {
  const float* data = matrix.f32();
  for (int64_t i = 0; i < matrix.count(); ++i) {
    if (!std::isfinite(data[i])) {
      Throw(ErrorCode::kNonFinite,
            "singular values: element {} of the matrix is {}; the weights are damaged", i, data[i]);
    }
  }
  int64_t order = 0;
  std::vector<double> gram = GramMatrix(matrix, order);
  std::vector<double> values(static_cast<size_t>(order));
  static const Dsyevd dsyevd = LoadDsyevd();
  const int status = dsyevd(kRowMajor, 'N', 'L', static_cast<int>(order), gram.data(),
                            static_cast<int>(order), values.data());
  if (status != 0) {
    Throw(ErrorCode::kInternal,
          "singular values: LAPACK's dsyevd returned {} on a matrix of order {}", status, order);
  }
  std::reverse(values.begin(), values.end());
  for (double& value : values) value = std::sqrt(std::max(value, 0.0));
  return values;
}

std::vector<Spectrum> WeightSpectra(const Model& model,
                                    const std::function<void(double)>& progress) {
  const ModelTensors& w = model.tensors();
  struct Group {
    const char* name;
    Tensor BlockTensors::*member;
  };
  constexpr Group kGroups[] = {{"q/k/v projection", &BlockTensors::qkv_weight},
                               {"attention output", &BlockTensors::proj_weight},
                               {"MLP up", &BlockTensors::fc_weight},
                               {"MLP down", &BlockTensors::mlp_proj_weight}};
  const double total = static_cast<double>(std::size(kGroups) * w.blocks.size() + 1);
  double done = 0;
  std::vector<Spectrum> spectra;
  for (const Group& group : kGroups) {
    Spectrum spectrum{group.name, static_cast<int>(w.blocks.size()), {}};
    for (const BlockTensors& block : w.blocks) {
      const std::vector<double> values = SingularValues(block.*group.member);
      spectrum.values.resize(values.size());
      for (size_t k = 0; k < values.size(); ++k) {
        spectrum.values[k] += values[k] / static_cast<double>(w.blocks.size());
      }
      if (progress) progress(++done / total);
    }
    spectra.push_back(std::move(spectrum));
  }
  spectra.push_back({"embedding", 1, SingularValues(w.wte)});
  if (progress) progress(1);
  return spectra;
}

}  // namespace denseformer

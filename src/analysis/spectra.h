// Singular values of the weight matrices, largest first.
#ifndef DENSEFORMER_ANALYSIS_SPECTRA_H_
#define DENSEFORMER_ANALYSIS_SPECTRA_H_

#include <functional>
#include <string>
#include <vector>

#include "model/model.h"

namespace denseformer {

struct Spectrum {
  std::string name;            // "q/k/v projection"
  int matrices = 0;            // averaged over
  std::vector<double> values;  // mean of the k-th largest singular value
};

// Of one matrix, by LAPACK in double precision. Throws kNonFinite where it holds a value that is no
// number.
std::vector<double> SingularValues(const Tensor& matrix);

// Five groups: q/k/v projection, attention output, MLP up, MLP down (each averaged over the
// blocks), embedding. Calls progress(share) between matrices where given.
std::vector<Spectrum> WeightSpectra(const Model& model,
                                    const std::function<void(double)>& progress = {});

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_SPECTRA_H_

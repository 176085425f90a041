// The GEMM backend that every CPU can run: plain loops, each result summed by one thread in the
// order of the terms, in double precision, so that it is also what the others are compared with.
#include <algorithm>

#include "base/parallel.h"
#include "kernels/adamw.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/frozen.h"
#include "tensor/scratch.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

float Load(const float* from) { return *from; }
float Load(const bf16* from) { return static_cast<float>(*from); }

void Store(double sum, const Tensor& to, int64_t at) {
  const float value = static_cast<float>(sum);
  if (to.dtype() == DType::kF32) {
    to.f32()[at] = value;
  } else {
    to.As<bf16>()[at] = bf16(value);
  }
}

// Calls compute(row, sums) for each row of a result, with `columns` sums that are zero.
template <class F>
void ForEachRow(int64_t rows, int64_t columns, F compute) {
  ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    double* const sums =
        static_cast<double*>(ThreadScratch(static_cast<size_t>(columns) * sizeof(double)));
    for (int64_t row = begin; row < end; ++row) {
      std::fill(sums, sums + columns, 0.0);
      compute(row, sums);
    }
  });
}

// sums [columns] += factor * row.
template <class T>
void AddRow(float factor, const T* row, int64_t columns, double* sums) {
  for (int64_t i = 0; i < columns; ++i) sums[i] += double{factor} * double{Load(row + i)};
}

// y = x W^T with the epilogue, W [out, in] of x's dtype.
template <class T>
void MultiplyWeight(const Tensor& x, const T* weights, int64_t out, const GemmEpilogue& epilogue,
                    const Tensor& y) {
  const Tensor& to = y.empty() ? epilogue.gelu : y;
  const float* const bias = epilogue.bias.empty() ? nullptr : epilogue.bias.f32();
  const int64_t terms = x.cols();
  // Every result is shared out, because one row is the usual case of decoding.
  ParallelFor(x.rows() * out, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t n = at / out, o = at % out;
      const T *a = x.As<const T>() + n * terms, *b = weights + o * terms;
      double sum = 0;
      for (int64_t i = 0; i < terms; ++i) sum += double{Load(a + i)} * double{Load(b + i)};
      if (bias != nullptr) sum += double{bias[o]};
      Store(sum, to, at);
    }
  });
  RunEpiloguePasses(epilogue, y);
}

// T is the compute dtype.
template <class T>
class ReferenceWeight : public GemmWeight {
 public:
  explicit ReferenceWeight(const Tensor& master) : master_(master) {
    if constexpr (kRounded) copy_ = Storage(static_cast<size_t>(master.count()) * sizeof(T));
  }

  void Change(FunctionRef<void(int64_t first, int64_t last)> change) override {
    ParallelFor(master_.rows(), 1, [&](int64_t begin, int64_t end, int) {
      change(begin, end);
      if constexpr (kRounded) {
        const float* from = master_.f32();
        T* const to = static_cast<T*>(copy_.data());
        for (int64_t i = begin * in(); i < end * in(); ++i) to[i] = T(from[i]);
      }
    });
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    MultiplyWeight(x, weights(), out(), epilogue, y);
  }

  void BackwardInput(const Tensor& dy, const Tensor& dx) const override {
    ForEachRow(dy.rows(), in(), [&](int64_t n, double* sums) {
      const T* const row = dy.As<const T>() + n * out();
      for (int64_t o = 0; o < out(); ++o) {
        AddRow(Load(row + o), weights() + o * in(), in(), sums);
      }
      for (int64_t i = 0; i < in(); ++i) Store(sums[i], dx, n * in() + i);
    });
  }

 private:
  static constexpr bool kRounded = !std::is_same_v<T, float>;

  int64_t out() const { return master_.shape()[0]; }
  int64_t in() const { return master_.shape()[1]; }
  const T* weights() const {
    return static_cast<const T*>(kRounded ? copy_.data() : master_.raw());
  }

  Tensor master_;
  Storage copy_;  // the master rounded to T; nothing for fp32
};

// Rows of W one after the other.
template <class T>
class ReferenceFrozenWeight : public FrozenWeight {
 public:
  ReferenceFrozenWeight(int64_t out, int64_t in, std::byte* memory)
      : out_(out), in_(in), weights_(reinterpret_cast<T*>(memory)) {}

  void Pack(int64_t first, int64_t count, const float* rows, const float*) override {
    std::transform(rows, rows + count * in_, weights_ + first * in_,
                   [](float value) { return T(value); });
  }
  void ReadRow(int64_t row, float* to) const override {
    for (int64_t i = 0; i < in_; ++i) to[i] = Load(weights_ + row * in_ + i);
  }
  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    MultiplyWeight(x, weights_, out_, epilogue, y);
  }

 private:
  int64_t out_, in_;
  T* weights_;
};

constexpr FrozenGemm kReferenceFrozenGemm = {
    .supports = [](WeightFormat format) { return format != WeightFormat::kInt8; },
    .description = [](WeightFormat) { return std::string("plain reference loops"); },
    .bytes =
        [](int64_t out, int64_t in, WeightFormat format) {
          const size_t bytes = static_cast<size_t>(out * in) * SizeOf(ComputeOf(format));
          return (bytes + kAlignment - 1) / kAlignment * kAlignment;
        },
    .make = [](int64_t out, int64_t in, WeightFormat format,
               std::byte* memory) -> std::unique_ptr<FrozenWeight> {
      if (format == WeightFormat::kF32) {
        return std::make_unique<ReferenceFrozenWeight<float>>(out, in, memory);
      }
      return std::make_unique<ReferenceFrozenWeight<bf16>>(out, in, memory);
    },
};

template <class T>
void BackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add) {
  const int64_t rows = dy.rows(), out = dy.cols(), in = x.cols();
  ForEachRow(out, in, [&](int64_t o, double* sums) {
    for (int64_t n = 0; n < rows; ++n) {
      AddRow(Load(dy.As<const T>() + n * out + o), x.As<const T>() + n * in, in, sums);
    }
    float* const to = dweight.f32() + o * in;
    for (int64_t i = 0; i < in; ++i) {
      to[i] = static_cast<float>(add ? double{to[i]} + sums[i] : sums[i]);
    }
  });
}

}  // namespace

constinit extern const GemmBackend kReferenceGemm = {
    .name = "reference",
    .requirements = "nothing",
    .available = [](DType, CpuFeatures) { return true; },
    .description = [] { return std::string("plain reference loops"); },
    .packed_bytes =
        [](int64_t out, int64_t in, DType compute) {
          return compute == DType::kF32 ? 0 : static_cast<size_t>(out * in) * SizeOf(compute);
        },
    .transposed_bytes = [](int64_t, int64_t, DType) { return size_t{0}; },
    .pack = [](const Tensor& master, DType compute) -> std::unique_ptr<GemmWeight> {
      if (compute == DType::kF32) return std::make_unique<ReferenceWeight<float>>(master);
      return std::make_unique<ReferenceWeight<bf16>>(master);
    },
    .backward_weight =
        [](const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add, double* squares) {
          (dy.dtype() == DType::kF32 ? BackwardWeight<float> : BackwardWeight<bf16>)(dy, x, dweight,
                                                                                     add);
          if (squares != nullptr) {
            *squares = SumOfSquares({dweight.f32(), static_cast<size_t>(dweight.count())});
          }
        },
    .frozen = &kReferenceFrozenGemm,
};

}  // namespace denseformer

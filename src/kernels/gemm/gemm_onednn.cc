// The GEMM backend on oneDNN, and its only user; versions 2.6 and 3.x both build.
//
// Forward and input gradients use `matmul` with weights in oneDNN's packed layout (bf16) or in
// place (fp32). Weight gradients use the `gemm` implementation, maybe with a sum into the fp32
// gradient: the faster one there.
#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "kernels/adamw.h"
#include "kernels/convert.h"
#include "kernels/gemm/backend.h"
#include "tensor/storage.h"

// oneDNN's threads are OpenMP's; weak, because the thread-sanitizer build itself does not link
// OpenMP.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));
extern "C" void omp_set_dynamic(int dynamic) __attribute__((weak));
extern "C" int omp_get_thread_limit() __attribute__((weak));

namespace denseformer {
namespace {

using dnnl::memory;

constexpr int64_t kPackingRows = 256;  // the packed layout does not depend on it

// oneDNN has no bf16 at all without AVX-512; there GEMMs run in fp32 on converted operands.
bool HasNativeBf16() { return GetCpuFeatures().Has(CpuFeature::kAvx512); }

// Limits oneDNN to the features in use.
void LimitIsa() {
  const CpuFeatures cpu = GetCpuFeatures();
  if (!cpu.Has(CpuFeature::kAvx2)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  } else if (!cpu.Has(CpuFeature::kAvx512)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  } else if (!cpu.Has(CpuFeature::kAvx512Bf16)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_vnni);
  } else if (!DescribesAmxTiles()) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  }
}

dnnl::engine& Engine() {
  static dnnl::engine engine = [] {
    LimitIsa();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

memory::data_type ToDnnl(DType dtype) {
  return dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
}

memory::desc Plain(int64_t rows, int64_t cols, DType dtype) {
  return memory::desc({rows, cols}, ToDnnl(dtype), memory::dims{cols, 1});
}
memory::desc Strided(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                     DType dtype) {
  return memory::desc({rows, cols}, ToDnnl(dtype), memory::dims{row_stride, col_stride});
}
memory::desc Transposed(int64_t rows, int64_t cols, DType dtype) {
  return memory::desc({rows, cols}, ToDnnl(dtype), memory::dims{1, rows});
}

dnnl::matmul::primitive_desc MakeDescriptor(const memory::desc& source, const memory::desc& weights,
                                            const memory::desc* bias,
                                            const memory::desc& destination,
                                            const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  if (bias != nullptr) {
    return {Engine(), source, weights, *bias, destination, attributes};
  }
  return {Engine(), source, weights, destination, attributes};
#else
  if (bias != nullptr) {
    return {dnnl::matmul::desc(source, weights, *bias, destination), attributes, Engine()};
  }
  return {dnnl::matmul::desc(source, weights, destination), attributes, Engine()};
#endif
}

// The `gemm` implementation of source x weights, if there is one: with a transposed source it takes
// 0.7 to 0.9 of the time of oneDNN's first choice. In oneDNN 2 `next_impl` reads the operation
// descriptor that the primitive descriptor was made from, so that one must live as long.
dnnl::matmul::primitive_desc MakeGemmDescriptor(const memory::desc& source,
                                                const memory::desc& weights,
                                                const memory::desc& destination,
                                                const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc descriptor(Engine(), source, weights, destination, attributes);
#else
  const dnnl::matmul::desc operation(source, weights, destination);
  dnnl::matmul::primitive_desc descriptor(operation, attributes, Engine());
#endif
  do {
    if (std::string(descriptor.impl_info_str()).rfind("gemm", 0) == 0) return descriptor;
  } while (descriptor.next_impl());
  return MakeDescriptor(source, weights, nullptr, destination, attributes);
}

enum class Gemm : uint8_t { kForward, kBackwardInput, kBackwardWeight };

// What a compiled primitive depends on.
struct Key {
  Gemm gemm;
  int64_t rows, out, in;
  DType operand, result;
  bool bias;
  int threads;
  int64_t dy_stride = 0;  // of a row of dy, for weight gradients
  int64_t columns = 0;    // of the result, where a call computes only some; 0: all
  bool add = false;       // to what the result holds

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = static_cast<size_t>(key.gemm);
    for (int64_t part : {key.rows, key.out, key.in, int64_t{key.operand == DType::kBF16},
                         int64_t{key.result == DType::kBF16}, int64_t{key.bias},
                         int64_t{key.threads}, key.dy_stride, key.columns, int64_t{key.add}}) {
      hash = hash * 0x9E3779B97F4A7C15u + static_cast<size_t>(part);
    }
    return hash;
  }
};

// The layout of a packed bf16 matrix of weights, [k, n] as matmul sees it.
memory::desc PackedLayout(int64_t k, int64_t n) {
  const memory::desc any({k, n}, memory::data_type::bf16, memory::format_tag::any);
  return MakeDescriptor(Plain(kPackingRows, k, DType::kBF16), any, nullptr,
                        Plain(kPackingRows, n, DType::kBF16), {})
      .weights_desc();
}

struct Compiled {
  dnnl::matmul primitive;
  memory source, weights, bias, destination, scratchpad;
  size_t scratch_bytes = 0;
};

// What making a primitive may take. oneDNN writes through a null pointer where it gets no memory.
constexpr int64_t kPrimitiveBytes = int64_t{32} << 20;

Compiled Compile(const Key& key) {
  RequireAddressSpace("a matrix multiplication", kPrimitiveBytes);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  memory::desc source, weights, destination;
  const bool packed = key.operand == DType::kBF16;
  const int64_t all = key.gemm == Gemm::kForward ? key.out : key.in;
  const int64_t columns = key.columns > 0 ? key.columns : all;
  const memory::desc bias({1, columns}, memory::data_type::f32, memory::dims{columns, 1});
  switch (key.gemm) {
    case Gemm::kForward:
      source = Plain(key.rows, key.in, key.operand);
      weights =
          packed ? PackedLayout(key.in, key.out) : Strided(key.in, columns, 1, key.in, key.operand);
      destination = Strided(key.rows, columns, key.out, 1, key.result);
      break;
    case Gemm::kBackwardInput:
      source = Plain(key.rows, key.out, key.operand);
      weights = packed ? PackedLayout(key.out, key.in)
                       : Strided(key.out, columns, key.in, 1, key.operand);
      destination = Strided(key.rows, columns, key.in, 1, key.result);
      break;
    case Gemm::kBackwardWeight:
      source =
          memory::desc({key.out, key.rows}, ToDnnl(key.operand), memory::dims{1, key.dy_stride});
      weights = Plain(key.rows, key.in, key.operand);
      destination = Plain(key.out, key.in, DType::kF32);
      break;
  }
  if (key.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto descriptor =
      key.gemm == Gemm::kBackwardWeight
          ? MakeGemmDescriptor(source, weights, destination, attributes)
          : MakeDescriptor(source, weights, key.bias ? &bias : nullptr, destination, attributes);
  Compiled compiled;
  compiled.primitive = dnnl::matmul(descriptor);
  compiled.source = memory(source, Engine(), nullptr);
  compiled.weights = memory(weights, Engine(), nullptr);
  compiled.destination = memory(destination, Engine(), nullptr);
  if (key.bias) compiled.bias = memory(bias, Engine(), nullptr);
  compiled.scratch_bytes = descriptor.scratchpad_desc().get_size();
  compiled.scratchpad = memory(descriptor.scratchpad_desc(), Engine(), nullptr);
  return compiled;
}

// Scratch memory of this thread that only grows.
void* Scratch(Storage& storage, size_t bytes) {
  if (storage.bytes() < bytes) storage = Storage(bytes);
  return storage.data();
}

// One cache per thread: the memory objects inside are bound to pointers at each call.
Compiled& Lookup(const Key& key) {
  thread_local std::unordered_map<Key, Compiled, KeyHash> cache;
  auto found = cache.find(key);
  if (found == cache.end()) found = cache.emplace(key, Compile(key)).first;
  return found->second;
}

void Run(const Key& key, const void* source, const void* weights, const float* bias,
         void* destination) {
  thread_local dnnl::stream stream(Engine());
  thread_local Storage scratch;
  Compiled& compiled = Lookup(key);
  compiled.source.set_data_handle(const_cast<void*>(source));
  compiled.weights.set_data_handle(const_cast<void*>(weights));
  compiled.destination.set_data_handle(destination);
  compiled.scratchpad.set_data_handle(Scratch(scratch, compiled.scratch_bytes));
  if (key.bias) compiled.bias.set_data_handle(const_cast<float*>(bias));
  // The C interface: the C++ one builds its list of arguments on the heap at every call.
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, compiled.source.get()},
                                       {DNNL_ARG_WEIGHTS, compiled.weights.get()},
                                       {DNNL_ARG_DST, compiled.destination.get()},
                                       {DNNL_ARG_SCRATCHPAD, compiled.scratchpad.get()},
                                       {DNNL_ARG_BIAS, compiled.bias.get(/*allow_empty=*/true)}};
  const dnnl_status_t status =
      dnnl_primitive_execute(compiled.primitive.get(), stream.get(), key.bias ? 5 : 4, arguments);
  DF_CHECK_MSG(status == dnnl_success, "oneDNN returned {}", static_cast<int>(status));
  stream.wait();
}

// How many threads oneDNN's next call gets when it asks for `threads`. oneDNN gives each thread of
// its plan a part of the result; where OpenMP starts fewer threads than planned (OMP_DYNAMIC,
// OMP_THREAD_LIMIT), the parts of the others would silently be missing.
int UseThreads(int threads) {
  if (omp_set_num_threads == nullptr) return threads;
  omp_set_dynamic(0);
  threads = std::min(threads, omp_get_thread_limit());
  omp_set_num_threads(threads);
  return threads;
}

Key MakeKey(Gemm gemm, int64_t rows, int64_t out, int64_t in, DType operand, DType result,
            bool bias) {
  return {gemm, rows, out, in, operand, result, bias, UseThreads(NumThreads())};
}

// Without AVX-512 oneDNN splits the sum of an fp32 GEMM over its threads, so that the result
// depends on their number.
bool SplitsSums() { return !GetCpuFeatures().Has(CpuFeature::kAvx512); }

// Parts of `n` columns or rows of a result: as large as can be while a few threads have work, and
// the same whatever their number.
int64_t PartOf(int64_t n) { return std::max<int64_t>(64, (n / 8 + 15) / 16 * 16); }

// Calls compute(first, count) for every part of n, each on one thread.
template <class F>
void ForEachPart(int64_t n, F compute) {
  const int64_t part = PartOf(n);
  ParallelFor((n + part - 1) / part, 1, [&](int64_t begin, int64_t end, int) {
    UseThreads(1);
    for (int64_t p = begin; p < end; ++p) compute(p * part, std::min(part, n - p * part));
  });
}

// y = x W^T (+ bias) or dx = dy W in fp32; weights [out, in] as in the master.
void RunF32(Gemm gemm, int64_t rows, int64_t out, int64_t in, const float* source,
            const float* weights, const float* bias, float* destination) {
  if (!SplitsSums()) {
    Run(MakeKey(gemm, rows, out, in, DType::kF32, DType::kF32, bias != nullptr), source, weights,
        bias, destination);
    return;
  }
  const bool forward = gemm == Gemm::kForward;
  ForEachPart(forward ? out : in, [&](int64_t first, int64_t count) {
    const Key key{gemm,          rows, out,  in, DType::kF32, DType::kF32, bias != nullptr,
                  /*threads=*/1, 0,    count};
    Run(key, source, weights + (forward ? first * in : first),
        bias == nullptr ? nullptr : bias + first, destination + first);
  });
}

// An fp32 copy of `from` in scratch memory number `slot`, for CPUs without bf16 GEMMs.
Tensor AsF32(const Tensor& from, int slot) {
  if (from.dtype() == DType::kF32) return from;
  thread_local Storage storage[2];
  const size_t bytes = static_cast<size_t>(from.count()) * sizeof(float);
  const Tensor copy(static_cast<float*>(Scratch(storage[slot], bytes)), from.shape());
  Convert(from, copy);
  return copy;
}

// The destination of a GEMM that runs in fp32 for a bf16 result.
Tensor F32Destination(const Tensor& to) {
  if (to.dtype() == DType::kF32) return to;
  thread_local Storage storage;
  const size_t bytes = static_cast<size_t>(to.count()) * sizeof(float);
  return Tensor(static_cast<float*>(Scratch(storage, bytes)), to.shape());
}

void Deliver(const Tensor& result, const Tensor& to) {
  if (result.raw() != to.raw()) Convert(result, to);
}

// Copies a matrix to another layout; prepared once, for the number of threads at that time.
class Repack {
 public:
  Repack() = default;
  Repack(const memory::desc& from, const void* source, const memory::desc& to)
      : source_(from, Engine(), const_cast<void*>(source)), destination_(to, Engine(), nullptr) {
    // oneDNN plans with the threads that OpenMP has now, which may be more than --threads.
    threads_ = UseThreads(NumThreads());
    reorder_ = dnnl::reorder(source_, destination_);
  }

  void Run(void* copy) const {
    destination_.set_data_handle(copy);
    UseThreads(threads_);
    thread_local dnnl::stream stream(Engine());
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source_.get()},
                                         {DNNL_ARG_TO, destination_.get()}};
    const dnnl_status_t status = dnnl_primitive_execute(reorder_.get(), stream.get(), 2, arguments);
    DF_CHECK_MSG(status == dnnl_success, "oneDNN returned {}", static_cast<int>(status));
    stream.wait();
  }

 private:
  memory source_, destination_;
  dnnl::reorder reorder_;
  int threads_ = 1;
};

size_t PackedBytes(int64_t out, int64_t in, DType compute) {
  if (compute == DType::kF32) return 0;
  const size_t count = static_cast<size_t>(out) * static_cast<size_t>(in);
  if (!HasNativeBf16()) return count * sizeof(float);
  return PackedLayout(in, out).get_size();
}

size_t TransposedBytes(int64_t out, int64_t in, DType compute) {
  return compute == DType::kBF16 && HasNativeBf16() ? PackedLayout(out, in).get_size() : 0;
}

// bf16 weights in oneDNN's packed layout.
class NativeBf16Weight : public GemmWeight {
 public:
  explicit NativeBf16Weight(const Tensor& master)
      : master_(master),
        copy_(PackedBytes(out(), in(), DType::kBF16)),
        transposed_bytes_(TransposedBytes(out(), in(), DType::kBF16)) {
    to_copy_ =
        Repack(Transposed(in(), out(), DType::kF32), master.raw(), PackedLayout(in(), out()));
    // From the copy, not from the master: half the bytes, and passes do not need the master.
    to_transposed_ = Repack(PackedLayout(in(), out()).permute_axes({1, 0}), copy_.data(),
                            PackedLayout(out(), in()));
  }

  void Change(FunctionRef<void(int64_t first, int64_t last)> change) override {
    ParallelFor(out(), /*grain=*/1, [&](int64_t begin, int64_t end, int) { change(begin, end); });
    to_copy_.Run(copy_.data());
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    const Tensor& to = y.empty() ? epilogue.gelu : y;
    const float* bias = epilogue.bias.empty() ? nullptr : epilogue.bias.f32();
    Run(MakeKey(Gemm::kForward, x.rows(), out(), in(), DType::kBF16, to.dtype(), bias != nullptr),
        x.raw(), copy_.data(), bias, to.raw());
    RunEpiloguePasses(epilogue, y);
  }

  void BackwardInput(const Tensor& dy, const Tensor& dx) const override {
    thread_local Storage storage;
    void* const transposed = Scratch(storage, transposed_bytes_);
    to_transposed_.Run(transposed);
    // After the copy, which may set another number of threads.
    Run(MakeKey(Gemm::kBackwardInput, dy.rows(), out(), in(), DType::kBF16, dx.dtype(), false),
        dy.raw(), transposed, nullptr, dx.raw());
  }

 private:
  int64_t out() const { return master_.shape()[0]; }
  int64_t in() const { return master_.shape()[1]; }

  Tensor master_;
  Storage copy_;  // packed for x W^T
  size_t transposed_bytes_;
  Repack to_copy_, to_transposed_;
};

// fp32, or bf16 where oneDNN computes it in fp32.
class F32Weight : public GemmWeight {
 public:
  F32Weight(const Tensor& master, DType compute)
      : master_(master), rounded_(PackedBytes(master.rows(), master.cols(), compute)) {}

  void Change(FunctionRef<void(int64_t first, int64_t last)> change) override {
    ParallelFor(out(), /*grain=*/1, [&](int64_t begin, int64_t end, int) { change(begin, end); });
    if (rounded_.bytes() == 0) return;
    const float* from = master_.f32();
    float* to = static_cast<float*>(rounded_.data());
    ParallelFor(master_.count(), 1 << 14, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(bf16(from[i]));
    });
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    const Tensor& to = y.empty() ? epilogue.gelu : y;
    const Tensor result = F32Destination(to);
    RunF32(Gemm::kForward, x.rows(), out(), in(), AsF32(x, 0).f32(), weights(),
           epilogue.bias.empty() ? nullptr : epilogue.bias.f32(), result.f32());
    Deliver(result, to);
    RunEpiloguePasses(epilogue, y);
  }

  void BackwardInput(const Tensor& dy, const Tensor& dx) const override {
    const Tensor result = F32Destination(dx);
    RunF32(Gemm::kBackwardInput, dy.rows(), out(), in(), AsF32(dy, 0).f32(), weights(), nullptr,
           result.f32());
    Deliver(result, dx);
  }

 private:
  int64_t out() const { return master_.shape()[0]; }
  int64_t in() const { return master_.shape()[1]; }
  const float* weights() const {
    return rounded_.bytes() > 0 ? static_cast<const float*>(rounded_.data()) : master_.f32();
  }

  Tensor master_;
  Storage rounded_;  // bf16: the master's values rounded to bf16, as fp32
};

std::unique_ptr<GemmWeight> Pack(const Tensor& master, DType compute) {
  if (compute == DType::kBF16 && HasNativeBf16()) return std::make_unique<NativeBf16Weight>(master);
  return std::make_unique<F32Weight>(master, compute);
}

void BackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                    double* squares) {
  const int64_t out = dy.cols(), in = x.cols();
  const bool convert = dy.dtype() == DType::kBF16 && !HasNativeBf16();
  const Tensor left = convert ? AsF32(dy, 0) : dy, right = convert ? AsF32(x, 1) : x;
  const int64_t size = static_cast<int64_t>(SizeOf(left.dtype()));
  ForEachPart(out, [&](int64_t first, int64_t count) {
    const Key key{Gemm::kBackwardWeight, dy.rows(), count, in, left.dtype(), DType::kF32, false,
                  /*threads=*/1,         out,
                  /*columns=*/0,         add};
    Run(key, static_cast<const char*>(left.raw()) + first * size, right.raw(), nullptr,
        dweight.f32() + first * in);
  });
  if (squares != nullptr) {
    *squares = SumOfSquares({dweight.f32(), static_cast<size_t>(dweight.count())});
  }
}

std::string Description() {
  Engine();
  const dnnl_version_t* version = dnnl_version();
  CpuFeatures cpu = GetCpuFeatures();
  if (!DescribesAmxTiles()) {
    cpu = cpu & CpuFeatures{CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kAvx512Bf16};
  }
  return fmt::format("oneDNN {}.{}.{}, {}", version->major, version->minor, version->patch,
                     CpuName(cpu));
}

}  // namespace

constinit extern const GemmBackend kOneDnnGemm = {
    .name = "onednn",
    .requirements = "nothing",
    .available = [](DType, CpuFeatures) { return true; },
    .description = Description,
    .packed_bytes = PackedBytes,
    .transposed_bytes = TransposedBytes,
    .pack = Pack,
    .backward_weight = BackwardWeight,
};

}  // namespace denseformer

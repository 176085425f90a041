#include "kernels/gemm/onednn_matmul.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

// oneDNN's threads are OpenMP's; weak, because the thread-sanitizer build itself does not link
// OpenMP.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));
extern "C" void omp_set_dynamic(int dynamic) __attribute__((weak));
extern "C" int omp_get_thread_limit() __attribute__((weak));

namespace denseformer::onednn {
namespace {

using dnnl::memory;

constexpr int64_t kPackingRows = 256;  // the packed layout does not depend on it

// Limits oneDNN to the features in use.
void LimitIsa() {
  const CpuFeatures cpu = GetCpuFeatures();
  if (!cpu.Has(CpuFeature::kAvx2)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  } else if (!cpu.Has(CpuFeature::kAvx512)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  } else if (!cpu.Has(CpuFeature::kAvx512Vnni)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core);
  } else if (!cpu.Has(CpuFeature::kAvx512Bf16)) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_vnni);
  } else if (!DescribesAmxTiles()) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  }
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

struct KeyHash {
  size_t operator()(const GemmKey& key) const {
    size_t hash = static_cast<size_t>(key.gemm);
    for (int64_t part : {key.rows, key.out, key.in, int64_t{key.operand == DType::kBF16},
                         int64_t{key.result == DType::kBF16}, int64_t{key.bias},
                         int64_t{key.threads}, key.dy_stride, key.columns, int64_t{key.add}}) {
      hash = hash * 0x9E3779B97F4A7C15u + static_cast<size_t>(part);
    }
    return hash;
  }
};

struct Compiled {
  dnnl::matmul primitive;
  memory source, weights, bias, destination, scratchpad;
  size_t scratch_bytes = 0;
};

// What making a primitive may take. oneDNN writes through a null pointer where it gets no memory.
constexpr int64_t kPrimitiveBytes = int64_t{32} << 20;

Compiled Compile(const GemmKey& key) {
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

// One cache per thread: the memory objects inside are bound to pointers at each call.
Compiled& Lookup(const GemmKey& key) {
  thread_local std::unordered_map<GemmKey, Compiled, KeyHash> cache;
  auto found = cache.find(key);
  if (found == cache.end()) found = cache.emplace(key, Compile(key)).first;
  return found->second;
}

void Execute(const dnnl::primitive& primitive, int count, const dnnl_exec_arg_t* arguments) {
  thread_local dnnl::stream stream(Engine());
  // The C interface: the C++ one builds its list of arguments on the heap at every call.
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive.get(), stream.get(), count, arguments);
  DF_CHECK_MSG(status == dnnl_success, "oneDNN returned {}", static_cast<int>(status));
  stream.wait();
}

}  // namespace

dnnl::engine& Engine() {
  static dnnl::engine engine = [] {
    LimitIsa();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

int UseThreads(int threads) {
  if (omp_set_num_threads == nullptr) return threads;
  omp_set_dynamic(0);
  threads = std::min(threads, omp_get_thread_limit());
  omp_set_num_threads(threads);
  return threads;
}

void* Scratch(Storage& storage, size_t bytes) {
  if (storage.bytes() < bytes) storage = Storage(bytes);
  return storage.data();
}

memory::desc TransposedF32(int64_t rows, int64_t cols) {
  return memory::desc({rows, cols}, memory::data_type::f32, memory::dims{1, rows});
}

memory::desc PackedLayout(int64_t k, int64_t n) {
  const memory::desc any({k, n}, memory::data_type::bf16, memory::format_tag::any);
  return MakeDescriptor(Plain(kPackingRows, k, DType::kBF16), any, nullptr,
                        Plain(kPackingRows, n, DType::kBF16), {})
      .weights_desc();
}

void RunGemm(const GemmKey& key, const void* source, const void* weights, const float* bias,
             void* destination) {
  thread_local Storage scratch;
  Compiled& compiled = Lookup(key);
  compiled.source.set_data_handle(const_cast<void*>(source));
  compiled.weights.set_data_handle(const_cast<void*>(weights));
  compiled.destination.set_data_handle(destination);
  compiled.scratchpad.set_data_handle(Scratch(scratch, compiled.scratch_bytes));
  if (key.bias) compiled.bias.set_data_handle(const_cast<float*>(bias));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, compiled.source.get()},
                                       {DNNL_ARG_WEIGHTS, compiled.weights.get()},
                                       {DNNL_ARG_DST, compiled.destination.get()},
                                       {DNNL_ARG_SCRATCHPAD, compiled.scratchpad.get()},
                                       {DNNL_ARG_BIAS, compiled.bias.get(/*allow_empty=*/true)}};
  Execute(compiled.primitive, key.bias ? 5 : 4, arguments);
}

Repack::Repack(const memory::desc& from, const void* source, const memory::desc& to)
    : source_(from, Engine(), const_cast<void*>(source)), destination_(to, Engine(), nullptr) {
  // oneDNN plans with the threads that OpenMP has now, which may be more than --threads.
  threads_ = UseThreads(NumThreads());
  reorder_ = dnnl::reorder(source_, destination_);
}

void Repack::Run(void* copy) const {
  destination_.set_data_handle(copy);
  UseThreads(threads_);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source_.get()},
                                       {DNNL_ARG_TO, destination_.get()}};
  Execute(reorder_, 2, arguments);
}

}  // namespace denseformer::onednn

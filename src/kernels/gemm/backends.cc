// The table of GEMM backends, and the choice among them.
#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/frozen.h"
#include "kernels/gemm/gemm.h"

// In order of preference; gemm_<name>.cc defines the row k<Name>Gemm.
#define DF_GEMM_BACKENDS(ROW) \
  ROW(kAmxGemm)               \
  ROW(kOneDnnGemm)            \
  ROW(kReferenceGemm)

namespace denseformer {

#define DF_DECLARE(row) extern const GemmBackend row;
DF_GEMM_BACKENDS(DF_DECLARE)
#undef DF_DECLARE

namespace {

#define DF_POINTER(row) &row,
constexpr const GemmBackend* kBackends[] = {DF_GEMM_BACKENDS(DF_POINTER)};
#undef DF_POINTER

std::atomic<const GemmBackend*> scoped{nullptr};

// "amx, onednn" of the rows that `include` accepts.
template <class F>
std::string Names(F include) {
  std::string names;
  for (const GemmBackend* backend : kBackends) {
    if (include(*backend)) names += (names.empty() ? "" : ", ") + std::string(backend->name);
  }
  return names;
}

const GemmBackend* FromEnvironment() {
  const char* wanted = std::getenv("DENSEFORMER_GEMM");
  if (wanted == nullptr || *wanted == '\0') return nullptr;
  const GemmBackend* found = FindGemmBackend(wanted);
  if (found == nullptr) {
    Throw(ErrorCode::kUsage, "DENSEFORMER_GEMM: got '{}', expected one of {}", wanted,
          Names([](const GemmBackend&) { return true; }));
  }
  return found;
}

// The backend that the caller or the user asks for, or null.
const GemmBackend* Forced() {
  if (const GemmBackend* override = scoped) return override;
  static const GemmBackend* const environment = FromEnvironment();
  return environment;
}

}  // namespace

const GemmBackend* FindGemmBackend(std::string_view name) {
  for (const GemmBackend* backend : kBackends) {
    if (name == backend->name) return backend;
  }
  return nullptr;
}

std::vector<const GemmBackend*> AvailableGemmBackends(DType compute) {
  std::vector<const GemmBackend*> available;
  for (const GemmBackend* backend : kBackends) {
    if (backend->available(compute, GetCpuFeatures())) available.push_back(backend);
  }
  return available;
}

const GemmBackend& GemmBackendFor(DType compute) {
  const CpuFeatures cpu = GetCpuFeatures();
  if (const GemmBackend* forced = Forced()) {
    if (!forced->available(compute, cpu)) {
      Throw(ErrorCode::kUnsupported,
            "DENSEFORMER_GEMM: got {}, which needs {}; expected for {} on this CPU ({}): {}",
            forced->name, forced->requirements, DTypeName(compute), CpuName(cpu),
            Names([&](const GemmBackend& backend) { return backend.available(compute, cpu); }));
    }
    return *forced;
  }
  for (const GemmBackend* backend : kBackends) {
    if (backend->available(compute, cpu)) return *backend;
  }
  DF_CHECK_MSG(false, "no GEMM backend for {}", DTypeName(compute));
}

const FrozenGemm& FrozenGemmFor(WeightFormat format) {
  const FrozenGemm* own = GemmBackendFor(ComputeOf(format)).frozen;
  return own != nullptr && own->supports(format) ? *own : kPanelGemm;
}

std::string FrozenGemmDescription(WeightFormat format) {
  return FrozenGemmFor(format).description(format);
}

std::string GemmDescription() {
  if (const GemmBackend* forced = Forced()) return forced->description();
  const GemmBackend &low = GemmBackendFor(DType::kBF16), &full = GemmBackendFor(DType::kF32);
  if (&low == &full) return full.description();
  return "bf16: " + low.description() + "; fp32: " + full.description();
}

ScopedGemmBackend::ScopedGemmBackend(const GemmBackend* backend)
    : before_(scoped.exchange(backend)) {}

ScopedGemmBackend::~ScopedGemmBackend() { scoped = before_; }

}  // namespace denseformer

// Which instructions the kernels may use: the features of this CPU, limited by DENSEFORMER_CPU.
#ifndef DENSEFORMER_BASE_CPU_H_
#define DENSEFORMER_BASE_CPU_H_

#include <cstdint>
#include <initializer_list>
#include <string>

namespace denseformer {

// Each is a flag of its own. Other architectures add theirs here; without any, kernels use what the
// compiler's baseline has (SSE2 on x86-64).
enum class CpuFeature : uint32_t {
  kAvx2 = 1 << 0,        // AVX2 and FMA
  kAvx512 = 1 << 1,      // AVX-512 F, BW, CD, DQ, VL
  kAvx512Vnni = 1 << 2,  // AVX-512 VNNI: int8 dot products
  kAvx512Bf16 = 1 << 3,  // AVX-512 BF16: dot products and conversions
  kAmxBf16 = 1 << 4,     // AMX tiles and their bf16 dot product
  kAmxInt8 = 1 << 5,     // AMX tiles and their int8 dot product
};

class CpuFeatures {
 public:
  constexpr CpuFeatures() = default;
  constexpr CpuFeatures(std::initializer_list<CpuFeature> features) {
    for (CpuFeature feature : features) bits_ |= static_cast<uint32_t>(feature);
  }

  constexpr bool Has(CpuFeature feature) const {
    return (bits_ & static_cast<uint32_t>(feature)) != 0;
  }
  constexpr bool HasAll(CpuFeatures other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr CpuFeatures operator&(CpuFeatures other) const {
    CpuFeatures both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }
  constexpr CpuFeatures operator|(CpuFeatures other) const {
    CpuFeatures either;
    either.bits_ = bits_ | other.bits_;
    return either;
  }
  constexpr bool operator==(const CpuFeatures&) const = default;

 private:
  uint32_t bits_ = 0;
};

// The features in use; detected once. DENSEFORMER_CPU names a smaller set (the table is in cpu.cc).
// A name whose features the CPU lacks is an error, so that a test never runs less than its name
// says.
CpuFeatures GetCpuFeatures();

// Makes GetCpuFeatures count `features` as detected where the CPU has all of avx512-nobf16. For the
// emulator of tests (kernels/emulation), before the first call of GetCpuFeatures.
void AddCpuFeaturesForTesting(CpuFeatures features);

// The name of a set of features, as DENSEFORMER_CPU takes it.
const char* CpuName(CpuFeatures features);

// The features of a set: "AVX2, AVX-512, VNNI"; "none" of an empty one.
std::string CpuFeatureList(CpuFeatures features);

// Whether CPUID describes the tile registers (leaf 0x1D), where kAmxBf16 is in use. Some virtual
// machines hide that leaf though the tiles work; code that sizes its tiles by it then fails with an
// illegal instruction.
bool DescribesAmxTiles();

// Whether bf16 GEMMs are faster than fp32 ones here.
bool HasFastBf16();

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_CPU_H_

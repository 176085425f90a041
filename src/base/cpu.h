// Which instructions the kernels may use: what this CPU has, limited by DENSEFORMER_CPU.
#ifndef DENSEFORMER_BASE_CPU_H_
#define DENSEFORMER_BASE_CPU_H_

namespace denseformer {

// Each level includes those before it.
enum class CpuLevel {
  kBaseline,  // x86-64 (SSE2), or any other architecture
  kAvx2,      // AVX2 and FMA
  kAvx512,    // AVX-512 F, BW, CD, DQ, VL
  kAmx,       // AVX-512 BF16 and AMX tiles for bf16
};

// The level in use; found once. DENSEFORMER_CPU=baseline|avx2|avx512|amx lowers it (asking for more
// than the CPU has is an error, so that a test never runs less than its name says).
CpuLevel GetCpuLevel();
const char* CpuLevelName(CpuLevel level);

// Whether AVX-512 has the BF16 dot product instructions, within the level in use.
bool HasAvx512Bf16();

// Whether CPUID describes the tile registers (leaf 0x1D). Some virtual machines hide that leaf
// though the tiles work; code that sizes its tiles by it then fails with an illegal instruction.
bool DescribesAmxTiles();

// Whether bf16 matrix products are faster than fp32's here.
bool HasFastBf16();

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_CPU_H_

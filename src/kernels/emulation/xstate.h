// The vector and mask registers of interrupted code, in the XSAVE area of its signal frame.
#ifndef DENSEFORMER_KERNELS_EMULATION_XSTATE_H_
#define DENSEFORMER_KERNELS_EMULATION_XSTATE_H_

#include <cstddef>
#include <cstdint>

namespace denseformer::emulation {

inline constexpr size_t kVectorBytes = 64;
struct alignas(kVectorBytes) Vector {
  uint8_t bytes[kVectorBytes];
};

class SavedRegisters {
 public:
  // Reads where the CPU puts each part of the area; once, before the first signal.
  static void FindLayout();

  // `area`: uc_mcontext.fpregs.
  explicit SavedRegisters(void* area);

  // Whether the frame holds the state of AVX-512.
  bool HasAvx512() const;

  Vector Read(int number) const;
  // The first `bytes` bytes of `value`, zeros behind them.
  void Write(int number, const Vector& value, size_t bytes);
  uint64_t ReadMask(int number) const;

 private:
  enum Component : int { kSse = 1, kAvx = 2, kMasks = 5, kUpperHalves = 6, kUpperRegisters = 7 };

  bool Saved(Component component) const;
  uint8_t* At(Component component, int number) const;
  void WritePart(Component component, int number, const uint8_t* from);

  uint8_t* area_;
};

}  // namespace denseformer::emulation

#endif  // DENSEFORMER_KERNELS_EMULATION_XSTATE_H_

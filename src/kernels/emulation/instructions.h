// What the emulated instructions do, after Intel's Software Developer's Manual: AVX512_BF16 and the
// part of AMX that the kernels use.
#ifndef DENSEFORMER_KERNELS_EMULATION_INSTRUCTIONS_H_
#define DENSEFORMER_KERNELS_EMULATION_INSTRUCTIONS_H_

#include "kernels/emulation/decode.h"
#include "kernels/emulation/xstate.h"

namespace denseformer::emulation {

// Executes `instruction` for the calling thread, whose tile registers live here. Returns null, or
// why it cannot: then nothing has changed.
const char* Execute(const Instruction& instruction, SavedRegisters& registers);

}  // namespace denseformer::emulation

#endif  // DENSEFORMER_KERNELS_EMULATION_INSTRUCTIONS_H_

// Decodes the VEX and EVEX instructions that the emulator knows (instructions.cc).
#ifndef DENSEFORMER_KERNELS_EMULATION_DECODE_H_
#define DENSEFORMER_KERNELS_EMULATION_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace denseformer::emulation {

// Registers 0 to 15 as instructions number them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8...
struct GeneralRegisters {
  uint64_t value[16];
};

enum class Prefix : uint8_t { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };

struct Instruction {
  bool evex;  // else VEX
  Prefix prefix;
  uint8_t opcode;    // of the map 0F38
  bool wide;         // W
  int vector_bytes;  // 16, 32 or 64
  int reg;           // ModRM.reg
  int vvvv;          // the register beside ModRM
  int mask;          // of opmask registers; 0: no mask
  bool zeroing;      // what the mask excludes becomes 0
  bool broadcast;    // the memory operand is one element; of registers: a rounding mode
  bool memory;       // ModRM.rm is memory, else register `rm`
  int rm;
  uint64_t address;  // of memory: base register and displacement
  uint64_t
      stride;   // the scaled index register: from row to row of a tile, else part of the address
  size_t size;  // bytes of the instruction
};

// The instruction at `code`, or nothing where it is none of the map 0F38 in VEX or EVEX form.
std::optional<Instruction> Decode(const uint8_t* code, const GeneralRegisters& registers);

}  // namespace denseformer::emulation

#endif  // DENSEFORMER_KERNELS_EMULATION_DECODE_H_

#include "kernels/emulation/decode.h"

#include <cstring>

namespace denseformer::emulation {
namespace {

constexpr int kMap0F38 = 2;
constexpr uint8_t kLock = 0xf0;  // tests make instructions illegal by it

// One bit of a byte; prefixes hold most of theirs inverted.
int Bit(uint8_t byte, int bit) { return byte >> bit & 1; }
int Inverted(uint8_t byte, int bit) { return Bit(byte, bit) ^ 1; }

// What the prefixes add to the numbers in ModRM and SIB.
struct Extensions {
  int reg, index, base, rm;
};

template <class T>
int64_t ReadSigned(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// ModRM.rm, SIB and displacement, from the byte behind ModRM on. `unit`: what a displacement of one
// byte counts. Returns the byte behind them.
const uint8_t* DecodeMemory(uint8_t modrm, const uint8_t* at, const Extensions& ext, int unit,
                            const GeneralRegisters& registers, Instruction* to) {
  const int mod = modrm >> 6, rm = modrm & 7;
  bool has_base = true, relative = false;
  int base = rm;
  to->stride = 0;
  if (rm == 4) {
    const uint8_t sib = *at++;
    const int index = (sib >> 3 & 7) | ext.index;
    base = sib & 7;
    if (index != 4) to->stride = registers.value[index] << (sib >> 6);
    has_base = !(base == 5 && mod == 0);
  } else if (rm == 5 && mod == 0) {
    has_base = false;
    relative = true;
  }
  int64_t displacement = 0;
  if (mod == 1) {
    displacement = ReadSigned<int8_t>(at) * unit;
    at += 1;
  } else if (mod == 2 || !has_base) {
    displacement = ReadSigned<int32_t>(at);
    at += 4;
  }
  to->address = static_cast<uint64_t>(displacement);
  if (has_base) to->address += registers.value[base | ext.base];
  // No instruction here has an immediate operand: the displacement ends it.
  if (relative) to->address += reinterpret_cast<uint64_t>(at);
  return at;
}

}  // namespace

std::optional<Instruction> Decode(const uint8_t* code, const GeneralRegisters& registers) {
  Instruction to{};
  Extensions ext{};
  const uint8_t* at = *code == kLock ? code + 1 : code;
  uint8_t second;  // the prefix byte with W, vvvv and pp
  if (*at == 0xc4) {
    const uint8_t first = at[1];
    if ((first & 0x1f) != kMap0F38) return std::nullopt;
    second = at[2];
    ext = {.reg = Inverted(first, 7) << 3,
           .index = Inverted(first, 6) << 3,
           .base = Inverted(first, 5) << 3,
           .rm = Inverted(first, 5) << 3};
    to.vector_bytes = 16 << Bit(second, 2);
    at += 3;
  } else if (*at == 0x62) {
    const uint8_t first = at[1], third = at[3];
    if ((first & 0x0f) != kMap0F38) return std::nullopt;
    second = at[2];
    ext = {.reg = Inverted(first, 7) << 3 | Inverted(first, 4) << 4,
           .index = Inverted(first, 6) << 3,
           .base = Inverted(first, 5) << 3,
           .rm = Inverted(first, 5) << 3 | Inverted(first, 6) << 4};
    to.evex = true;
    to.vector_bytes = 16 << (third >> 5 & 3);
    if (to.vector_bytes > 64) return std::nullopt;
    to.mask = third & 7;
    to.zeroing = Bit(third, 7) != 0;
    to.broadcast = Bit(third, 4) != 0;
    to.vvvv = Inverted(third, 3) << 4;
    at += 4;
  } else {
    return std::nullopt;
  }
  to.wide = Bit(second, 7) != 0;
  to.vvvv |= (second >> 3 & 15) ^ 15;
  to.prefix = static_cast<Prefix>(second & 3);
  to.opcode = *at++;
  const uint8_t modrm = *at++;
  to.reg = (modrm >> 3 & 7) | ext.reg;
  to.memory = modrm >> 6 != 3;
  if (to.memory) {
    // EVEX counts displacements of one byte in operands.
    const int unit = !to.evex ? 1 : to.broadcast ? 4 : to.vector_bytes;
    at = DecodeMemory(modrm, at, ext, unit, registers, &to);
  } else {
    to.rm = (modrm & 7) | ext.rm;
  }
  to.size = static_cast<size_t>(at - code);
  return to;
}

}  // namespace denseformer::emulation

// Everything runs within a signal handler: no allocation, no locks, no exceptions.
#include "kernels/emulation/instructions.h"

#include <immintrin.h>

#include <cstring>

// The emulated features need AVX-512, which computes the sums here: in fp32, rounded to nearest
// even, with denormals as zeros on both sides, as the instructions do whatever MXCSR says. The
// handler's MXCSR is lost when it returns.
#define DF_EMULATION_TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))

namespace denseformer::emulation {
namespace {

constexpr unsigned kFlushDenormals = 0x1f80 | 0x8000 | 0x0040;  // masked exceptions, FTZ, DAZ

constexpr const char* kUnknown = "no emulated instruction";

template <class T>
T* Pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// ---- AVX512_BF16 ----

uint64_t MaskOf(const Instruction& in, const SavedRegisters& registers) {
  return in.mask == 0 ? ~uint64_t{0} : registers.ReadMask(in.mask);
}

// The operand in ModRM.rm; of memory only the elements of 4 bytes in `wanted` are read, because the
// others may lie outside of it.
Vector LoadOperand(const Instruction& in, const SavedRegisters& registers, uint64_t wanted) {
  if (!in.memory) return registers.Read(in.rm);
  Vector value{};
  const uint8_t* const from = Pointer<const uint8_t>(in.address + in.stride);
  for (int i = 0; i < in.vector_bytes / 4; ++i) {
    if ((wanted >> i & 1) == 0) continue;
    std::memcpy(value.bytes + 4 * i, from + (in.broadcast ? 0 : 4 * i), 4);
  }
  return value;
}

// Stores the first `bytes` of `value`, in elements of `size` bytes that the mask selects.
void StoreMasked(const Instruction& in, const Vector& value, size_t bytes, size_t size,
                 SavedRegisters& registers) {
  const uint64_t mask = MaskOf(in, registers);
  Vector result = registers.Read(in.reg);
  for (size_t i = 0; i * size < bytes; ++i) {
    if ((mask >> i & 1) != 0) {
      std::memcpy(result.bytes + i * size, value.bytes + i * size, size);
    } else if (in.zeroing) {
      std::memset(result.bytes + i * size, 0, size);
    }
  }
  registers.Write(in.reg, result, bytes);
}

// sum + odd products, then + even products, of pairs of bf16.
DF_EMULATION_TARGET __m512 DotPairs(__m512 sum, __m512i a, __m512i b) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                        _mm512_castsi512_ps(_mm512_and_si512(b, high)), sum);
  return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                         _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), sum);
}

DF_EMULATION_TARGET void DotProduct(const Instruction& in, SavedRegisters& registers) {
  const uint64_t mask = MaskOf(in, registers);
  const Vector a = registers.Read(in.vvvv), b = LoadOperand(in, registers, mask);
  Vector sum = registers.Read(in.reg);
  const __m512 result =
      DotPairs(_mm512_load_ps(sum.bytes), _mm512_load_si512(a.bytes), _mm512_load_si512(b.bytes));
  _mm512_store_ps(sum.bytes, result);
  StoreMasked(in, sum, static_cast<size_t>(in.vector_bytes), 4, registers);
}

uint16_t RoundToBf16(uint32_t x) {
  const uint32_t magnitude = x & 0x7fffffff;
  if (magnitude < 0x00800000) return static_cast<uint16_t>(x >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(x >> 16 | 0x0040);
  if (magnitude == 0x7f800000) return static_cast<uint16_t>(x >> 16);
  return static_cast<uint16_t>((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

// `count` values of fp32 at `from`, rounded.
void RoundVector(const Vector& from, int count, uint8_t* to) {
  for (int i = 0; i < count; ++i) {
    uint32_t value;
    std::memcpy(&value, from.bytes + 4 * i, sizeof(value));
    const uint16_t rounded = RoundToBf16(value);
    std::memcpy(to + 2 * i, &rounded, sizeof(rounded));
  }
}

void ConvertOne(const Instruction& in, SavedRegisters& registers) {
  const int count = in.vector_bytes / 4;
  Vector result{};
  RoundVector(LoadOperand(in, registers, MaskOf(in, registers)), count, result.bytes);
  StoreMasked(in, result, static_cast<size_t>(count) * 2, 2, registers);
}

void ConvertTwo(const Instruction& in, SavedRegisters& registers) {
  const int count = in.vector_bytes / 4;
  Vector result{};
  // The memory operand becomes the first half.
  RoundVector(LoadOperand(in, registers, MaskOf(in, registers)), count, result.bytes);
  RoundVector(registers.Read(in.vvvv), count, result.bytes + 2 * count);
  StoreMasked(in, result, static_cast<size_t>(in.vector_bytes), 2, registers);
}

const char* ExecuteVector(const Instruction& in, SavedRegisters& registers) {
  if (in.wide || (in.broadcast && !in.memory)) return kUnknown;
  if (in.opcode == 0x52 && in.prefix == Prefix::kF3) {
    DotProduct(in, registers);  // VDPBF16PS
  } else if (in.opcode == 0x72 && in.prefix == Prefix::kF3) {
    ConvertOne(in, registers);  // VCVTNEPS2BF16
  } else if (in.opcode == 0x72 && in.prefix == Prefix::kF2) {
    ConvertTwo(in, registers);  // VCVTNE2PS2BF16
  } else {
    return kUnknown;
  }
  return nullptr;
}

// ---- AMX ----

constexpr int kTiles = 8, kTileRows = 16;
constexpr size_t kRowBytes = 64, kConfigBytes = 64;

struct Tile {
  Vector rows[kTileRows];
};

// The memory operand of LDTILECFG.
struct TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == kConfigBytes);

thread_local constinit TileConfig config = {};
thread_local constinit Tile tiles[kTiles] = {};

bool Configured(int tile) {
  return tile < kTiles && config.palette == 1 && config.rows[tile] > 0 &&
         config.row_bytes[tile] > 0;
}

const char* LoadConfig(const uint8_t* from) {
  TileConfig wanted;
  std::memcpy(&wanted, from, sizeof(wanted));
  if (wanted.palette > 1) return "LDTILECFG of an unknown palette";
  for (int i = 0; i < 14; ++i) {
    if (wanted.reserved[i] != 0) return "LDTILECFG with reserved bytes that are not 0";
  }
  for (int i = 0; wanted.palette == 1 && i < 16; ++i) {
    const bool used = wanted.rows[i] != 0 || wanted.row_bytes[i] != 0;
    if (used && (i >= kTiles || wanted.rows[i] == 0 || wanted.row_bytes[i] == 0 ||
                 wanted.rows[i] > kTileRows || wanted.row_bytes[i] > kRowBytes)) {
      return "LDTILECFG of a tile that is too large";
    }
  }
  config = wanted.palette == 0 ? TileConfig{} : wanted;
  std::memset(tiles, 0, sizeof(tiles));
  return nullptr;
}

const char* LoadTile(const Instruction& in) {
  if (!Configured(in.reg)) return "TILELOADD of a tile that is not configured";
  for (int r = 0; r < kTileRows; ++r) {
    Vector row{};
    if (r < config.rows[in.reg]) {
      const auto* const from =
          Pointer<const uint8_t>(in.address + in.stride * static_cast<uint64_t>(r));
      std::memcpy(row.bytes, from, config.row_bytes[in.reg]);
    }
    tiles[in.reg].rows[r] = row;
  }
  return nullptr;
}

const char* StoreTile(const Instruction& in) {
  if (!Configured(in.reg)) return "TILESTORED of a tile that is not configured";
  for (int r = 0; r < config.rows[in.reg]; ++r) {
    auto* const to = Pointer<uint8_t>(in.address + in.stride * static_cast<uint64_t>(r));
    std::memcpy(to, tiles[in.reg].rows[r].bytes, config.row_bytes[in.reg]);
  }
  return nullptr;
}

// The operands of a tile product: c += a b.
struct TileProduct {
  int c, a, b;
};

const char* CheckShapes(const TileProduct& t) {
  if (!Configured(t.a) || !Configured(t.b) || !Configured(t.c)) {
    return "a product of tiles that are not configured";
  }
  if (t.a == t.b || t.a == t.c || t.b == t.c) return "a product of a tile with itself";
  if (config.rows[t.c] != config.rows[t.a] || config.row_bytes[t.c] != config.row_bytes[t.b] ||
      config.row_bytes[t.a] != 4 * config.rows[t.b]) {
    return "a product of tiles whose sizes do not match";
  }
  return nullptr;
}

// Rows beyond those of a tile and bytes beyond its row are zeros in registers, and stay so: their
// sums are of zeros.
DF_EMULATION_TARGET void MultiplyBf16(const TileProduct& t) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (int m = 0; m < config.rows[t.c]; ++m) {
    const uint8_t* const a = tiles[t.a].rows[m].bytes;
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int k = 0; k < config.rows[t.b]; ++k) {
      int pair;
      std::memcpy(&pair, a + 4 * k, sizeof(pair));
      const __m512i left = _mm512_set1_epi32(pair);
      const __m512i right = _mm512_load_si512(tiles[t.b].rows[k].bytes);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(left, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(right, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(left, high)),
                            _mm512_castsi512_ps(_mm512_and_si512(right, high)), odd);
    }
    uint8_t* const c = tiles[t.c].rows[m].bytes;
    const auto columns = static_cast<__mmask16>((1u << (config.row_bytes[t.c] / 4)) - 1);
    const __m512 sum = _mm512_add_ps(_mm512_load_ps(c), _mm512_add_ps(even, odd));
    _mm512_store_ps(c, _mm512_maskz_mov_ps(columns, sum));
  }
}

// Bytes of `a` signed, of `b` unsigned: sums of 32 bits without saturation.
void MultiplySignedUnsigned(const TileProduct& t) {
  for (int m = 0; m < config.rows[t.c]; ++m) {
    uint32_t sums[16];
    std::memcpy(sums, tiles[t.c].rows[m].bytes, sizeof(sums));
    for (int k = 0; k < config.rows[t.b]; ++k) {
      const uint8_t* const a = tiles[t.a].rows[m].bytes + 4 * k;
      const uint8_t* const b = tiles[t.b].rows[k].bytes;
      for (int n = 0; n < config.row_bytes[t.c] / 4; ++n) {
        for (int i = 0; i < 4; ++i) {
          sums[n] += static_cast<uint32_t>(static_cast<int8_t>(a[i]) * b[4 * n + i]);
        }
      }
    }
    std::memcpy(tiles[t.c].rows[m].bytes, sums, sizeof(sums));
  }
}

const char* ExecuteTile(const Instruction& in) {
  const auto is = [&](uint8_t opcode, Prefix prefix) {
    return in.opcode == opcode && in.prefix == prefix;
  };
  if (in.wide || in.vector_bytes != 16) return kUnknown;
  if (in.memory && is(0x49, Prefix::kNone) && in.reg == 0) {  // LDTILECFG
    return LoadConfig(Pointer<const uint8_t>(in.address + in.stride));
  }
  if (in.memory && is(0x49, Prefix::k66) && in.reg == 0) {  // STTILECFG
    std::memcpy(Pointer<uint8_t>(in.address + in.stride), &config, sizeof(config));
    return nullptr;
  }
  if (in.memory && is(0x4b, Prefix::kF2)) return LoadTile(in);
  if (in.memory && is(0x4b, Prefix::kF3)) return StoreTile(in);
  if (!in.memory && is(0x49, Prefix::kF2) && in.rm == 0) {  // TILEZERO
    if (!Configured(in.reg)) return "TILEZERO of a tile that is not configured";
    tiles[in.reg] = {};
    return nullptr;
  }
  const TileProduct product = {.c = in.reg, .a = in.rm, .b = in.vvvv};
  if (!in.memory && is(0x5c, Prefix::kF3)) {  // TDPBF16PS
    const char* const wrong = CheckShapes(product);
    if (wrong == nullptr) MultiplyBf16(product);
    return wrong;
  }
  if (!in.memory && is(0x5e, Prefix::kF3)) {  // TDPBSUD
    const char* const wrong = CheckShapes(product);
    if (wrong == nullptr) MultiplySignedUnsigned(product);
    return wrong;
  }
  return kUnknown;
}

}  // namespace

const char* Execute(const Instruction& instruction, SavedRegisters& registers) {
  _mm_setcsr(kFlushDenormals);
  return instruction.evex ? ExecuteVector(instruction, registers) : ExecuteTile(instruction);
}

}  // namespace denseformer::emulation

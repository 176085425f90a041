#include "kernels/emulation/xstate.h"

#include <asm/sigcontext.h>
#include <cpuid.h>

#include <cstring>

namespace denseformer::emulation {
namespace {

// Where the parts of a vector register lie: XMM 0-15 in the legacy area, the upper halves of
// YMM 0-15 and of ZMM 0-15, and ZMM 16-31 whole.
struct Part {
  size_t offset;  // of the component in the area
  size_t bytes;   // of a register
  size_t count;   // of registers
};
Part parts[8];

constexpr size_t kHeader = 512;  // of the XSAVE area: XSTATE_BV, which components are not zero

}  // namespace

void SavedRegisters::FindLayout() {
  parts[kSse] = {160, 16, 16};
  const auto find = [](Component component, size_t bytes, size_t count) {
    unsigned size, offset, c, d;
    if (__get_cpuid_count(0xd, component, &size, &offset, &c, &d) == 0) return;
    parts[component] = {offset, bytes, count};
  };
  find(kAvx, 16, 16);
  find(kMasks, 8, 8);
  find(kUpperHalves, 32, 16);
  find(kUpperRegisters, 64, 16);
}

SavedRegisters::SavedRegisters(void* area) : area_(static_cast<uint8_t*>(area)) {}

bool SavedRegisters::HasAvx512() const {
  if (area_ == nullptr) return false;
  const auto& software = reinterpret_cast<const _fpstate*>(area_)->sw_reserved;
  constexpr uint64_t kAll =
      1 << kSse | 1 << kAvx | 1 << kMasks | 1 << kUpperHalves | 1 << kUpperRegisters;
  return software.magic1 == FP_XSTATE_MAGIC1 && (software.xfeatures & kAll) == kAll;
}

bool SavedRegisters::Saved(Component component) const {
  uint64_t present;
  std::memcpy(&present, area_ + kHeader, sizeof(present));
  return (present >> component & 1) != 0;
}

uint8_t* SavedRegisters::At(Component component, int number) const {
  return area_ + parts[component].offset + parts[component].bytes * static_cast<size_t>(number);
}

// A component that is in its initial state, all zeros, need not be in memory.
void SavedRegisters::WritePart(Component component, int number, const uint8_t* from) {
  const Part& part = parts[component];
  if (!Saved(component)) {
    std::memset(area_ + part.offset, 0, part.bytes * part.count);
    uint64_t present;
    std::memcpy(&present, area_ + kHeader, sizeof(present));
    present |= uint64_t{1} << component;
    std::memcpy(area_ + kHeader, &present, sizeof(present));
  }
  std::memcpy(At(component, number), from, part.bytes);
}

Vector SavedRegisters::Read(int number) const {
  Vector value{};
  const auto read = [&](Component component, int index, size_t to) {
    if (Saved(component)) {
      std::memcpy(value.bytes + to, At(component, index), parts[component].bytes);
    }
  };
  if (number >= 16) {
    read(kUpperRegisters, number - 16, 0);
  } else {
    read(kSse, number, 0);
    read(kAvx, number, 16);
    read(kUpperHalves, number, 32);
  }
  return value;
}

void SavedRegisters::Write(int number, const Vector& value, size_t bytes) {
  Vector whole{};
  std::memcpy(whole.bytes, value.bytes, bytes);
  if (number >= 16) {
    WritePart(kUpperRegisters, number - 16, whole.bytes);
  } else {
    WritePart(kSse, number, whole.bytes);
    WritePart(kAvx, number, whole.bytes + 16);
    WritePart(kUpperHalves, number, whole.bytes + 32);
  }
}

uint64_t SavedRegisters::ReadMask(int number) const {
  uint64_t mask = 0;
  if (Saved(kMasks)) std::memcpy(&mask, At(kMasks, number), sizeof(mask));
  return mask;
}

}  // namespace denseformer::emulation

// Runs kernels for AVX512_BF16 and AMX on a CPU with AVX-512 that lacks them: the illegal
// instructions raise SIGILL, whose handler executes them on the registers in the signal frame.
//
// For tests alone: an object library that the program never links. With DENSEFORMER_EMULATE=1 in
// the environment it works from before main() on, and GetCpuFeatures() counts what is emulated as
// present; where the CPU has a feature itself, nothing traps and the hardware is tested.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/cpu.h"
#include "kernels/emulation/decode.h"
#include "kernels/emulation/instructions.h"
#include "kernels/emulation/xstate.h"

namespace denseformer::emulation {
namespace {

// Tells which instruction is wrong, and ends the process.
[[noreturn]] void Fail(const char* why, const uint8_t* code) {
  char text[256];
  int size = std::snprintf(text, sizeof(text), "emulation: %s:", why);
  for (int i = 0; i < 12; ++i) {
    size += std::snprintf(text + size, sizeof(text) - static_cast<size_t>(size), " %02x", code[i]);
  }
  text[size++] = '\n';
  if (write(STDERR_FILENO, text, static_cast<size_t>(size)) < 0) std::_Exit(1);
  signal(SIGABRT, SIG_DFL);
  std::abort();
}

void OnIllegalInstruction(int, siginfo_t*, void* context) {
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  GeneralRegisters general;
  for (int i = 0; i < 16; ++i) general.value[i] = static_cast<uint64_t>(machine.gregs[kOrder[i]]);
  const auto* const code = reinterpret_cast<const uint8_t*>(machine.gregs[REG_RIP]);
  SavedRegisters registers(machine.fpregs);
  if (!registers.HasAvx512()) Fail("the signal frame has no AVX-512 state", code);
  const auto instruction = Decode(code, general);
  if (!instruction) Fail("unknown encoding", code);
  const char* const wrong = Execute(*instruction, registers);
  if (wrong != nullptr) Fail(wrong, code);
  machine.gregs[REG_RIP] += static_cast<greg_t>(instruction->size);
}

__attribute__((constructor)) void Install() {
  const char* const wanted = std::getenv("DENSEFORMER_EMULATE");
  if (wanted == nullptr || std::strcmp(wanted, "1") != 0) return;
  SavedRegisters::FindLayout();
  struct sigaction action = {};
  action.sa_sigaction = OnIllegalInstruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
  using enum CpuFeature;
  AddCpuFeaturesForTesting({kAvx512Bf16, kAmxBf16, kAmxInt8});
}

}  // namespace
}  // namespace denseformer::emulation

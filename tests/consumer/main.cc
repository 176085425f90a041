// Uses the public headers and nothing else; ends with 0 where they do what they say.
#include <denseformer/depth_pattern.h>
#include <denseformer/error.h>

#include <cstdio>

int main() {
  using denseformer::DepthPattern;
  const DepthPattern pattern = DepthPattern::Parse("4x5", /*depth=*/48);
  std::printf("4x5 at 48 blocks: %d modules, %d weights\n", pattern.module_count(),
              static_cast<int>(pattern.weight_count()));
  if (pattern.weight_count() != 62) return 1;
  try {
    DepthPattern::Parse("0x1", /*depth=*/48);
  } catch (const denseformer::Error& error) {
    std::printf("%s\n", error.what());
    return denseformer::ExitStatus(error.code()) == 2 ? 0 : 1;
  }
  return 1;
}

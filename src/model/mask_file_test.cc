#include "model/mask_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing.h"

namespace denseformer {
namespace {

TEST(MaskFileTest, SpecsStayAsTheyAre) {
  EXPECT_EQ(ResolveDepthPattern("4x2", 4), "4x2");
  EXPECT_EQ(ResolveDepthPattern("none", 4), "none");
  EXPECT_EQ(ResolveDepthPattern("mask:11/000", 2), "mask:11/000");
}

TEST(MaskFileTest, FileBecomesASpec) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "m", "# two blocks\n1 1\n0 0 0\n");
  EXPECT_EQ(ResolveDepthPattern(scratch / "m", 2), "mask:11/000");
  EXPECT_EQ(ErrorOf([&] { ResolveDepthPattern(scratch / "m", 3); }),
            scratch / "m" + ": 2 rows, expected 3 (one a block)");
}

TEST(MaskFileTest, NeitherSpecNorFile) {
  const std::string forms =
      "expected none, KxP (such as 1x1 or 4x5), grouped:KxP, last:K, final or a mask file";
  EXPECT_EQ(ErrorOf([] { ResolveDepthPattern("nine", 4); }), "depth pattern 'nine': " + forms);
  EXPECT_EQ(ErrorOf([] { ResolveDepthPattern("no/mask.txt", 4); }),
            "depth pattern 'no/mask.txt': " + forms + "; there is no file of that name");
  EXPECT_EQ(ErrorOf([] { ResolveDepthPattern("0x1", 4); }),
            "depth pattern '0x1': K is 0, expected at least 1");
  EXPECT_EQ(ErrorOf([] { ResolveDepthPattern("/", 4); }),
            "depth pattern '/': " + forms + "; there is no file of that name");
}

}  // namespace
}  // namespace denseformer

#include "model/mask_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/mutation_testing.h"
#include "base/printable.h"
#include "base/testing.h"
#include "denseformer/depth_pattern.h"

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
            scratch / "m" + ": 2 rows, expected 3 (one per block)");
}

// A file of that name changes nothing, not even where the spec does not suit the model.
TEST(MaskFileTest, SpecsComeBeforeFiles) {
  const TemporaryDirectory scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  WriteFileAtomic("1x1", "11\n000\n");
  WriteFileAtomic("1x9", "11\n000\n");
  std::filesystem::create_directory("none");
  EXPECT_EQ(ResolveDepthPattern("1x1", 2), "1x1");
  EXPECT_EQ(ResolveDepthPattern("none", 2), "none");
  EXPECT_EQ(ErrorOf([] { ResolveDepthPattern("1x9", 2); }),
            "depth pattern '1x9': period P = 9 is larger than the depth 2, so there would be no "
            "module");
  EXPECT_EQ(ResolveDepthPattern("./1x1", 2), "mask:11/000");
  std::filesystem::current_path(before);
}

TEST(MaskFileTest, RandomChangesAreFoundOrMeanAMask) {
  const std::string mask = "# four blocks\n1 1\n0 0 0\n1 0 0 1\n1,1,1,1,1\n";
  ASSERT_EQ(DepthPattern::FromMask(mask, 4, "m").ToString(), "mask:11/000/1001/11111");
  Random random(5);
  for (int round = 0; round < 20'000; ++round) {
    const std::string changed = Mutated(mask, "01# ,\n\t", random);
    try {
      const std::string spec = DepthPattern::FromMask(changed, 4, "m").ToString();
      ASSERT_EQ(DepthPattern::Parse(spec, 4).ToString(), spec) << changed;
    } catch (const Error& error) {
      const std::string message = error.what();
      ASSERT_EQ(error.code(), ErrorCode::kInvalid) << message;
      ASSERT_TRUE(message.starts_with("m:")) << message;
      ASSERT_EQ(Printable(message), message);
    }
  }
}

TEST(MaskFileTest, NeitherSpecNorFile) {
  const std::string forms =
      "expected none, KxP (such as 1x1 or 4x5), grouped:KxP, last:K, final, final:P or a mask file";
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

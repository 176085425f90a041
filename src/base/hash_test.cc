#include "base/hash.h"

#include "base/error_testing.h"
#include "base/file.h"
#include "base/testing.h"

namespace denseformer {
namespace {

// As `xxhsum -H2` prints them.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(HashBytes(nullptr, 0), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(HashBytes("abc", 3), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, PiecesGiveTheHashOfTheWhole) {
  std::string text(100000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 256);
  const std::string whole = HashBytes(text.data(), text.size());
  for (size_t piece : {1u, 63u, 64u, 65u, 99999u}) {
    Hasher hasher;
    for (size_t at = 0; at < text.size(); at += piece) {
      hasher.Add(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(hasher.Hex(), whole) << piece;
  }
  text[50000] ^= 1;
  EXPECT_NE(HashBytes(text.data(), text.size()), whole);
}

TEST(Hash, HexCanBeAskedForOnTheWay) {
  Hasher hasher;
  hasher.Add("a");
  const std::string a = hasher.Hex();
  EXPECT_EQ(a, HashBytes("a", 1));
  hasher.Add("bc");
  EXPECT_EQ(hasher.Hex(), HashBytes("abc", 3));
}

TEST(Hash, File) {
  const TemporaryDirectory dir;
  WriteFileAtomic(dir / "abc", "abc");
  EXPECT_EQ(HashFile(dir / "abc"), HashBytes("abc", 3));
  WriteFileAtomic(dir / "empty", "");
  EXPECT_EQ(HashFile(dir / "empty"), HashBytes(nullptr, 0));
  ExpectError(ErrorCode::kNotFound, "missing: No such file", [&] { HashFile(dir / "missing"); });
}

}  // namespace
}  // namespace denseformer

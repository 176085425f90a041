#include "infer/text_stream.h"

#include <gtest/gtest.h>

namespace denseformer {
namespace {

TEST(TextStream, HoldsBackAnIncompleteCharacter) {
  TextStream stream({});
  EXPECT_EQ(stream.Add("a\xE2\x82"), "a");
  EXPECT_EQ(stream.Add("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, GivesInvalidBytesAsTheyAre) {
  TextStream stream({});
  EXPECT_EQ(stream.Add("\xFF\xFE"), "\xFF\xFE");
  EXPECT_EQ(stream.Add("x\xF0\x9F"), "x");
  EXPECT_EQ(stream.Finish(), "\xF0\x9F");
}

TEST(TextStream, StopsBeforeAStopStringSplitOverTokens) {
  TextStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.Add("one E"), "one ");
  EXPECT_EQ(stream.Add("N"), "");
  EXPECT_EQ(stream.Add("X E"), "ENX ");
  EXPECT_EQ(stream.Add("ND tail"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.Add("more"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, TheFirstStopStringInTheTextWins) {
  TextStream stream({"b", "a"});
  EXPECT_EQ(stream.Add("xxabb"), "xx");
}

TEST(TextStream, HeldBackTextComesOutAtTheEnd) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.Add("the EN"), "the ");
  EXPECT_EQ(stream.Finish(), "EN");
}

TEST(IncompleteUtf8Tail, CountsTheBytesOfAStartedCharacter) {
  EXPECT_EQ(IncompleteUtf8Tail(""), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("abc"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("a\xC3"), 1u);
  EXPECT_EQ(IncompleteUtf8Tail("\xC3\xA9"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(IncompleteUtf8Tail("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80\x80"), 0u);
}

}  // namespace
}  // namespace denseformer

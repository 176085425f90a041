// Appending, cutting back to a checkpoint, files that are not as they were.
#include "train/json_lines.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace denseformer {
namespace {

nlohmann::ordered_json Step(int64_t step) { return {{"step", step}, {"loss", 0.1 * step}}; }

TEST(JsonLinesTest, AppendsAndContinues) {
  const TemporaryDirectory scratch;
  const std::string path = scratch / "m.jsonl";
  uint64_t at_two = 0;
  {
    JsonLines lines(path, 0, 0);
    EXPECT_EQ(lines.size(), 0u);
    lines.Append(Step(1));
    lines.Append(Step(2));
    lines.Sync();
    at_two = lines.size();
    lines.Append(Step(3));
    EXPECT_EQ(lines.size(), FileSize(path));
  }
  const std::string whole = ReadFile(path);
  EXPECT_EQ(whole.substr(0, whole.find('\n')), R"({"step":1,"loss":0.1})");
  JsonLines resumed(path, at_two, 2);
  EXPECT_EQ(resumed.size(), at_two);
  EXPECT_EQ(FileSize(path), at_two);
  resumed.Append(Step(3));
  EXPECT_EQ(ReadFile(path), whole);
  EXPECT_EQ(ReadJsonLines(path).size(), 3u);
}

TEST(JsonLinesTest, ANewRunStartsEmpty) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "m.jsonl", "{\"step\":1}\n");
  JsonLines lines(scratch / "m.jsonl", 0, 0);
  EXPECT_EQ(ReadFile(scratch / "m.jsonl"), "");
}

TEST(JsonLinesTest, AChangedFileKeepsWholeLinesUpToTheStep) {
  const TemporaryDirectory scratch;
  const std::string path = scratch / "m.jsonl";
  const std::string one = "{\"step\":1}\n", two = "{\"step\":2}\n", three = "{\"step\":3}\n";
  WriteFileAtomic(path, one + two);  // shorter than it was
  EXPECT_EQ(JsonLines(path, 1000, 1).size(), one.size());
  EXPECT_EQ(ReadFile(path), one);
  WriteFileAtomic(path, one + "junk\n[1]\n{\"x\":1}\n" + two + three);  // cut in a line
  EXPECT_EQ(JsonLines(path, one.size() + 2, 2).size(), one.size() + two.size());
  EXPECT_EQ(ReadFile(path), one + two);
  EXPECT_EQ(JsonLines(scratch / "none", 10, 2).size(), 0u);
}

TEST(JsonLinesTest, ReadingDropsAnIncompleteLastLineOnly) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "m", "{\"step\":1}\n{\"st");
  EXPECT_EQ(ReadJsonLines(scratch / "m").size(), 1u);
  WriteFileAtomic(scratch / "m", "{\"step\":1}\n{\"st\n{}\n");
  EXPECT_NE(ErrorOf([&] { ReadJsonLines(scratch / "m"); }).find("m:2: expected a JSON object"),
            std::string::npos);
}

TEST(JsonLinesTest, AFullDiskIsAnError) {
  const TemporaryDirectory scratch;
  JsonLines lines(scratch / "m", 0, 0);
  SetIoFaultForTesting([](IoOperation operation, const std::string&) {
    return operation == IoOperation::kWrite ? ENOSPC : 0;
  });
  const std::string error = ErrorOf([&] { lines.Append(Step(1)); });
  SetIoFaultForTesting({});
  EXPECT_NE(error.find("m: No space left on device"), std::string::npos) << error;
}

}  // namespace
}  // namespace denseformer

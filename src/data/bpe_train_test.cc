#include "data/bpe_train.h"

#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/testing.h"
#include "data/tokenizer_files.h"
#include "denseformer/tokenizer.h"

namespace denseformer {
namespace {

std::string RandomText(uint64_t seed, int words) {
  const char* const syllables[] = {"ba", "na", "ta", "ra", "lo", "mi", "aa", "a", "é", "the"};
  Random random(seed);
  std::string text;
  for (int i = 0; i < words; ++i) {
    for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
      text += syllables[random.Below(1 + random.Below(std::size(syllables)))];
    }
    text += random.Below(10) == 0 ? "\n" : " ";
  }
  return text;
}

PieceCounts Count(const std::string& path) {
  CorpusReader reader(FindCorpusFiles({path}), {"text", 1000, 5000});
  return CountPieces(reader);
}

// Counts every pair again after each merge.
std::vector<std::string> LearnByDefinition(const PieceCounts& pieces, size_t tokens) {
  std::vector<std::pair<std::vector<std::string>, int64_t>> words;
  std::map<std::string, int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) ids[std::string(1, static_cast<char>(byte))] = byte;
  for (const auto& [piece, count] : pieces) {
    words.push_back({{}, count});
    for (const char c : piece) words.back().first.emplace_back(1, c);
  }
  std::vector<std::string> learned;
  while (learned.size() < tokens) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [word, count] : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i)
        counts[{ids[word[i]], ids[word[i + 1]]}] += count;
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = 1;
    for (const auto& [pair, count] : counts) {
      if (count > most) {
        most = count;
        best = pair;
      }
    }
    if (most < 2) break;
    for (auto& [word, count] : words) {
      std::vector<std::string> next;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool here =
            i + 1 < word.size() && ids[word[i]] == best.first && ids[word[i + 1]] == best.second;
        next.push_back(here ? word[i] + word[i + 1] : word[i]);
        if (here && ids.emplace(next.back(), 256 + learned.size()).second) {
          learned.push_back(next.back());
        }
        i += here;
      }
      word = next;
    }
  }
  return learned;
}

TEST(BpeTrainTest, LearnsAsDefined) {
  const TemporaryDirectory dir;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    WriteFileAtomic(dir / "a.txt", RandomText(seed, 500));
    const PieceCounts pieces = Count(dir / "a.txt");
    const TokenizerData data = LearnBpe(pieces, 400);
    const std::vector<std::string> learned(data.tokens.begin() + 256, data.tokens.end() - 1);
    EXPECT_EQ(learned, LearnByDefinition(pieces, 400 - 257));
    EXPECT_EQ(data.tokens.back(), kEndOfTextName);
  }
}

TEST(BpeTrainTest, OverlappingPairs) {
  // "aaaaa" has the pair (a, a) four times; one pass merges two of them.
  const TokenizerData data = LearnBpe({{"aaaaa", 10}, {"baaab", 3}}, 262);
  const std::vector<std::string> learned(data.tokens.begin() + 256, data.tokens.end() - 1);
  EXPECT_EQ(learned, LearnByDefinition({{"aaaaa", 10}, {"baaab", 3}}, 5));
}

TEST(BpeTrainTest, SameFileAgainAndForAnyNumberOfThreads) {
  const TemporaryDirectory dir;
  WriteFileAtomic(dir / "a.txt", RandomText(9, 20000));
  const int before = NumThreads();
  std::vector<std::string> files;
  for (const int threads : {1, 1, 2, 5}) {
    SetNumThreads(threads);
    files.push_back(WriteTokenizerJson(LearnBpe(Count(dir / "a.txt"), 600)));
  }
  SetNumThreads(before);
  for (const std::string& file : files) EXPECT_EQ(file, files[0]);
}

TEST(BpeTrainTest, LearnedTokenizerRoundTrips) {
  const TemporaryDirectory dir;
  const std::string text = RandomText(11, 3000);
  WriteFileAtomic(dir / "a.txt", text);
  const Tokenizer tokenizer(LearnBpe(Count(dir / "a.txt"), 500));
  EXPECT_EQ(tokenizer.vocab_size(), 500);
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  EXPECT_EQ(tokenizer.Decode(ids), text);
  EXPECT_LT(ids.size() * 2, text.size());
  EXPECT_EQ(Tokenizer::FromJson(tokenizer.ToJson(), "x").Encode(text), ids);
}

TEST(BpeTrainTest, StopsWhereNothingRepeats) {
  const TokenizerData data = LearnBpe({{"abcd", 1}, {"xaby", 1}}, 1000);
  EXPECT_EQ(data.tokens.size(), 258u);
  EXPECT_EQ(data.tokens[256], "ab");
}

TEST(BpeTrainTest, BadInput) {
  EXPECT_EQ(ErrorOf([] {
              LearnBpe({{"a", 1}}, 256);
            }),
            "tokenizer train: a vocabulary of 256, expected 257 (256 bytes and the end of text) to "
            "1048576");
  EXPECT_EQ(ErrorOf([] { LearnBpe({}, 300); }),
            "tokenizer train: the corpus is empty, expected some text");
}

}  // namespace
}  // namespace denseformer

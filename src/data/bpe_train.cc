#include "data/bpe_train.h"

#include <algorithm>
#include <queue>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/signal.h"
#include "data/split.h"
#include "data/tokenizer_files.h"

namespace denseformer {
namespace {

struct ViewHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using CountMap = std::unordered_map<std::string, int64_t, ViewHash, std::equal_to<>>;

void AddPieces(std::string_view text, CountMap* counts) {
  SplitText(text, [&](const char* piece, size_t length) {
    const std::string_view view(piece, length);
    const auto found = counts->find(view);
    if (found != counts->end()) {
      ++found->second;
    } else {
      counts->emplace(view, 1);
    }
  });
}

// The pieces as sequences of tokens, with the counts of all pairs kept up to date.
class Learner {
 public:
  explicit Learner(const PieceCounts& pieces) {
    for (const auto& [text, count] : pieces) {
      words_.push_back({symbols_.size(), text.size(), count});
      for (const char c : text) symbols_.push_back(static_cast<unsigned char>(c));
    }
    for (size_t word = 0; word < words_.size(); ++word) {
      const int32_t* ids = symbols_.data() + words_[word].begin;
      for (size_t i = 0; i + 1 < words_[word].length; ++i) {
        Add(Key(ids[i], ids[i + 1]), words_[word].count, word);
      }
    }
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
    changed_.clear();
  }

  // The pair to merge next; false where none occurs twice.
  bool Best(int32_t* left, int32_t* right) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.key);
      const int64_t now = found == pairs_.end() ? 0 : found->second.count;
      if (now == top.count && now >= 2) {
        *left = static_cast<int32_t>(top.key >> 32);
        *right = static_cast<int32_t>(top.key & UINT32_MAX);
        return true;
      }
      // Out of date: the count has sunk since (a count that rises is queued at once).
      if (now < top.count && now >= 2) queue_.push({now, top.key});
    }
    return false;
  }

  void Merge(int32_t left, int32_t right, int32_t result) {
    // The list of words moves out, since new pairs may move the map's content.
    const std::vector<uint32_t> in_words = std::move(pairs_.at(Key(left, right)).words);
    for (const uint32_t word : in_words) MergeInWord(word, left, right, result);
    pairs_.erase(Key(left, right));
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const uint64_t key : changed_) {
      const auto found = pairs_.find(key);
      if (found != pairs_.end()) queue_.push({found->second.count, key});
    }
    changed_.clear();
  }

 private:
  struct Word {
    size_t begin, length;  // in symbols_
    int64_t count;
  };
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> words;  // where it occurs, or did once
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  void Add(uint64_t key, int64_t count, size_t word) {
    Pair& pair = pairs_[key];
    pair.count += count;
    if (pair.words.empty() || pair.words.back() != word) {
      pair.words.push_back(static_cast<uint32_t>(word));
    }
    changed_.push_back(key);
  }

  void Subtract(uint64_t key, int64_t count) { pairs_.at(key).count -= count; }

  void MergeInWord(uint32_t word_index, int32_t left, int32_t right, int32_t result) {
    Word& word = words_[word_index];
    int32_t* ids = symbols_.data() + word.begin;
    const uint64_t merged = Key(left, right);
    size_t to = 0;  // the new sequence is written over the old one
    for (size_t from = 0; from < word.length;) {
      if (from + 1 >= word.length || ids[from] != left || ids[from + 1] != right) {
        ids[to++] = ids[from++];
        continue;
      }
      // x l r y -> x n y: the pairs (x, l), (l, r), (r, y) go, (x, n) and (n, y) come. Where y
      // begins the next pair to merge, its own turn takes (n, y) away again.
      Subtract(merged, word.count);
      if (to > 0) {
        Subtract(Key(ids[to - 1], left), word.count);
        Add(Key(ids[to - 1], result), word.count, word_index);
      }
      if (from + 2 < word.length) {
        Subtract(Key(right, ids[from + 2]), word.count);
        Add(Key(result, ids[from + 2]), word.count, word_index);
      }
      ids[to++] = result;
      from += 2;
    }
    word.length = to;
  }

  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> changed_;  // pairs whose count has risen since the last merge
};

}  // namespace

PieceCounts CountPieces(CorpusReader& corpus) {
  std::vector<CountMap> parts(static_cast<size_t>(NumThreads()));
  Progress progress("reading", "MB", static_cast<double>(corpus.total_bytes()) / 1e6);
  for (;;) {
    std::vector<CorpusChunk> batch = corpus.NextBatch();
    if (batch.empty()) break;
    ThrowIfInterrupted("tokenizer train");
    ParallelForEach(static_cast<int64_t>(batch.size()), [&](int64_t i, int part) {
      corpus.ParseLine(&batch[i]);
      AddPieces(batch[i].text, &parts[part]);
    });
    progress.Update(static_cast<double>(corpus.consumed_bytes()) / 1e6);
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    for (const auto& [piece, count] : parts[i]) parts[0][piece] += count;
    parts[i].clear();
  }
  PieceCounts counts(parts[0].begin(), parts[0].end());
  std::sort(counts.begin(), counts.end());
  return counts;
}

void CheckVocabularySize(int vocab_size) {
  if (vocab_size < kSmallestVocabulary || vocab_size > kLargestVocabulary) {
    Throw(ErrorCode::kUsage,
          "tokenizer train: a vocabulary of {}, expected {} (256 bytes and the end of text) to {}",
          vocab_size, kSmallestVocabulary, kLargestVocabulary);
  }
}

TokenizerData LearnBpe(const PieceCounts& pieces, int vocab_size) {
  CheckVocabularySize(vocab_size);
  if (pieces.empty()) {
    Throw(ErrorCode::kInvalid, "tokenizer train: the corpus is empty, expected some text");
  }
  TokenizerData data = BareBytes();
  std::unordered_map<std::string, int32_t> ids;
  for (int32_t id = 0; id < 256; ++id) ids[data.tokens[id]] = id;
  std::set<std::pair<int32_t, int32_t>> merged;
  Learner learner(pieces);
  Progress progress("learning", "tokens", vocab_size, /*start=*/kSmallestVocabulary);
  while (static_cast<int>(data.tokens.size()) < vocab_size - 1) {
    BpeMerge merge{};
    if (!learner.Best(&merge.left, &merge.right)) break;
    ThrowIfInterrupted("tokenizer train");
    // Two ways to the same bytes (ab + c, a + bc) are one token; then a pair may come up again.
    const std::string bytes = data.tokens[merge.left] + data.tokens[merge.right];
    const auto [known, is_new] = ids.emplace(bytes, static_cast<int32_t>(data.tokens.size()));
    if (is_new) data.tokens.push_back(bytes);
    merge.result = known->second;
    learner.Merge(merge.left, merge.right, merge.result);
    if (merged.emplace(merge.left, merge.right).second) data.merges.push_back(merge);
    progress.Update(static_cast<double>(data.tokens.size()) + 1);
  }
  AppendEndOfText(&data);
  return data;
}

}  // namespace denseformer

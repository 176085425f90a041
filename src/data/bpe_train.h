// Learning a byte-level BPE: again and again the most frequent pair of neighbors, within the
// pieces that the splitter makes, becomes a token.
//
// Deterministic: counts do not depend on the number of threads, and of pairs with equal counts the
// one with the smaller ids (left first) wins.
#ifndef DENSEFORMER_DATA_BPE_TRAIN_H_
#define DENSEFORMER_DATA_BPE_TRAIN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/bpe.h"
#include "data/corpus.h"

namespace denseformer {

inline constexpr int kSmallestVocabulary = 257;  // the bytes and the end of text
inline constexpr int kLargestVocabulary = 1 << 20;

// How often each piece occurs, in the order of the bytes.
using PieceCounts = std::vector<std::pair<std::string, int64_t>>;
PieceCounts CountPieces(CorpusReader& corpus);

// Throws kUsage for a size out of range.
void CheckVocabularySize(int vocab_size);

// The ids: bytes, then the merges, then the end of text. Fewer than `vocab_size` tokens where no
// pair occurs twice anymore. Throws as CheckVocabularySize, and kInvalid for an empty corpus.
TokenizerData LearnBpe(const PieceCounts& pieces, int vocab_size);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_BPE_TRAIN_H_

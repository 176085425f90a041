// The names that other programs give to the parameters, as one table (foreign_names.cc) that import
// and export share.
#ifndef DENSEFORMER_IO_FOREIGN_NAMES_H_
#define DENSEFORMER_IO_FOREIGN_NAMES_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameters.h"

namespace denseformer {

enum class BlockNames {
  kFlat,    // one list of blocks
  kNested,  // groups of P blocks
};
enum class ModuleNames {
  kNone,     // no depth-weighted averages
  kPackage,  // the authors' Python package, and this program
  kGrouped,  // the authors' experiment script
  kFinal,    // the same, average at the end only: a tensor a weight
};

struct ForeignNaming {
  BlockNames blocks = BlockNames::kFlat;
  ModuleNames modules = ModuleNames::kNone;
  int period = 1;  // P, blocks a group
};

// A part of a parameter under its foreign name.
struct ForeignPiece {
  std::string name;
  int64_t begin = 0;  // first element within the parameter
  std::vector<int64_t> shape;
};

// Where the elements of `parameter` are. One piece, but with kFinal one per weight of the average.
std::vector<ForeignPiece> PiecesOf(const Parameter& parameter, const ForeignNaming& naming);

// The naming that these names show.
ForeignNaming DetectNaming(const std::set<std::string>& names);

// A name without what wrappers put before it ("_orig_mod.", "module.", "model.").
std::string WithoutWrappers(std::string_view name);

// The number of blocks that the names show.
int CountBlocks(const std::set<std::string>& names, const ForeignNaming& naming);

// Whether a name is of no use here: a causal mask.
bool IsMaskName(std::string_view name);

inline constexpr const char* kEmbeddingName = "transformer.wte.weight";
inline constexpr const char* kHeadName = "lm_head.weight";          // the embedding once more
inline constexpr const char* kPositionPrefix = "transformer.wpe.";  // tables of positions

}  // namespace denseformer

#endif  // DENSEFORMER_IO_FOREIGN_NAMES_H_

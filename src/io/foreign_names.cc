#include "io/foreign_names.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "io/weights.h"

namespace denseformer {
namespace {

enum class Part { kBlock, kModule };

struct NameRow {
  Part part;
  int style;  // a BlockNames or a ModuleNames
  // {i} block - 1; {r}, {b} group and place within it; {g} group that ends with the block; {j}
  // element of the average; {s} the name behind the block
  const char* pattern;
};

constexpr NameRow kNames[] = {
    {Part::kBlock, static_cast<int>(BlockNames::kFlat), "transformer.h.{i}.{s}"},
    {Part::kBlock, static_cast<int>(BlockNames::kNested), "transformer.h.{r}.{b}.{s}"},
    {Part::kModule, static_cast<int>(ModuleNames::kPackage), "dwa_modules.alphas.{i}.weight"},
    {Part::kModule, static_cast<int>(ModuleNames::kGrouped), "weights.{g}.weight"},
    {Part::kModule, static_cast<int>(ModuleNames::kFinal), "mixer.weight.{j}"},
};

const char* PatternOf(Part part, int style) {
  for (const NameRow& row : kNames) {
    if (row.part == part && row.style == style) return row.pattern;
  }
  DF_CHECK(false);
}

// The numbers in `name` where it has the form of `pattern`, with a number for each {..} and any
// text for {s}.
std::optional<std::vector<int>> MatchName(std::string_view name, std::string_view pattern) {
  std::vector<int> numbers;
  const std::vector<std::string> words = Split(name, '.'), forms = Split(pattern, '.');
  for (size_t w = 0; w < forms.size(); ++w) {
    if (forms[w] == "{s}") return words.size() > w ? std::optional(numbers) : std::nullopt;
    if (w >= words.size()) return std::nullopt;
    if (forms[w][0] != '{') {
      if (forms[w] != words[w]) return std::nullopt;
      continue;
    }
    const bool digits = !words[w].empty() && words[w].size() <= 6 &&
                        words[w].find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return std::nullopt;
    numbers.push_back(std::stoi(words[w]));
  }
  return words.size() == forms.size() ? std::optional(numbers) : std::nullopt;
}

std::string Fill(const char* pattern, int block, int period, int64_t element,
                 const std::string& suffix) {
  const int i = block - 1;
  return fmt::format(fmt::runtime(pattern), fmt::arg("i", i), fmt::arg("r", i / period),
                     fmt::arg("b", i % period), fmt::arg("g", block / period - 1),
                     fmt::arg("j", element), fmt::arg("s", suffix));
}

}  // namespace

std::vector<ForeignPiece> PiecesOf(const Parameter& parameter, const ForeignNaming& naming) {
  const std::vector<int64_t> shape = DimsOf(parameter.shape);
  if (parameter.group == ParameterGroup::kDwa) {
    const char* pattern = PatternOf(Part::kModule, static_cast<int>(naming.modules));
    if (naming.modules != ModuleNames::kFinal) {
      return {{Fill(pattern, parameter.block, naming.period, 0, ""), 0, shape}};
    }
    std::vector<ForeignPiece> pieces;
    for (int64_t j = 0; j < parameter.count(); ++j) {
      pieces.push_back({Fill(pattern, parameter.block, naming.period, j, ""), j, {1}});
    }
    return pieces;
  }
  if (parameter.block == 0 || parameter.group == ParameterGroup::kMixer) {
    return {{parameter.name, 0, shape}};
  }
  const std::string own =
      Fill(PatternOf(Part::kBlock, static_cast<int>(BlockNames::kFlat)), parameter.block, 1, 0, "");
  DF_CHECK(parameter.name.starts_with(own));
  return {{Fill(PatternOf(Part::kBlock, static_cast<int>(naming.blocks)), parameter.block,
                naming.period, 0, parameter.name.substr(own.size())),
           0, shape}};
}

ForeignNaming DetectNaming(const std::set<std::string>& names) {
  ForeignNaming naming;
  const char* nested = PatternOf(Part::kBlock, static_cast<int>(BlockNames::kNested));
  for (const std::string& name : names) {
    if (const auto numbers = MatchName(name, nested)) {
      naming.blocks = BlockNames::kNested;
      naming.period = std::max(naming.period, numbers->at(1) + 1);
    }
    for (const ModuleNames style :
         {ModuleNames::kPackage, ModuleNames::kGrouped, ModuleNames::kFinal}) {
      if (MatchName(name, PatternOf(Part::kModule, static_cast<int>(style)))) {
        naming.modules = style;
      }
    }
  }
  return naming;
}

int CountBlocks(const std::set<std::string>& names, const ForeignNaming& naming) {
  int blocks = 0;
  const char* pattern = PatternOf(Part::kBlock, static_cast<int>(naming.blocks));
  for (const std::string& name : names) {
    const auto numbers = MatchName(name, pattern);
    if (!numbers) continue;
    const int block = naming.blocks == BlockNames::kFlat
                          ? numbers->at(0)
                          : numbers->at(0) * naming.period + numbers->at(1);
    blocks = std::max(blocks, block + 1);
  }
  return blocks;
}

std::string WithoutWrappers(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : {"_orig_mod.", "module.", "model."}) {
      if (!name.starts_with(wrapper)) continue;
      name.remove_prefix(wrapper.size());
      again = true;
    }
  }
  return std::string(name);
}

bool IsMaskName(std::string_view name) {
  return name.starts_with("transformer.h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

}  // namespace denseformer

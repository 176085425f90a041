// The forms of a depth pattern, one row each: parsing, help, messages and docs read this table.
// A new pattern is one function and one row in depth_forms.cc.
#ifndef DENSEFORMER_MODEL_DEPTH_FORMS_H_
#define DENSEFORMER_MODEL_DEPTH_FORMS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

// S_i of every depth i, ascending; empty where there is no module; [d + 1].
using DepthSources = std::vector<std::vector<int>>;

// What stands in a spec in place of the letters of its form.
struct DepthArguments {
  std::string_view spec;  // the whole of it, for messages
  int depth = 0;          // blocks of the model
  int k = 1, p = 1;       // K and P
  std::string_view rows;  // ROWS: rows of 0 and 1 separated by '/'
};

struct DepthForm {
  // K and P stand for whole numbers of up to six digits, ROWS for the rest of the spec.
  std::string_view form;
  std::string_view modules;  // where the modules stand, in words
  std::string_view sources;  // what they read, in words
  std::string_view note;     // follows the form in lists; may be empty
  // K and P are at least 1. Throws kUsage where they do not suit the depth.
  DepthSources (*make)(const DepthArguments& arguments);
};

std::span<const DepthForm> DepthForms();

struct DepthMatch {
  const DepthForm* form;
  DepthArguments arguments;  // views of the spec
};
// The form that `spec` has; none where it has none, whatever the depth.
std::optional<DepthMatch> MatchDepthForm(std::string_view spec, int depth);

// S_i of the match. Throws kUsage where K or P is 0 or does not suit the depth.
DepthSources MakeDepthSources(const DepthMatch& match);

// The spec as ToString writes it: the form with its arguments.
std::string CanonicalSpec(const DepthMatch& match, const DepthSources& sources);

// "none, KxP (such as 1x1 or 4x5), ..., final or a mask file", for help and messages.
std::string DepthFormList();

// The table as Markdown, for docs/options.md.
std::string DepthFormTable();

// From the text of a mask file (DepthPattern::FromMask).
DepthSources ParseMask(std::string_view text, int depth, std::string_view file_name);

// "mask:" and the rows of the sources.
std::string MaskSpec(const DepthSources& sources);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_DEPTH_FORMS_H_

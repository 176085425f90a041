#include "model/depth_forms.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace denseformer {
namespace {

[[noreturn]] void Wrong(std::string_view spec, const std::string& why) {
  Throw(ErrorCode::kUsage, "depth pattern '{}': {}", spec, why);
}

void CheckPeriod(const DepthArguments& a) {
  if (a.p > a.depth) {
    Wrong(a.spec,
          fmt::format("period P = {} is larger than the depth {}, so there would be no module", a.p,
                      a.depth));
  }
}

void CheckWholePeriods(const DepthArguments& a) {
  CheckPeriod(a);
  if (a.depth % a.p != 0) {
    Wrong(a.spec, fmt::format("period P = {} does not divide the depth {}", a.p, a.depth));
  }
}

DepthSources None(const DepthArguments& a) { return DepthSources(a.depth + 1); }

DepthSources Dilated(const DepthArguments& a) {
  CheckPeriod(a);
  DepthSources sources(a.depth + 1);
  for (int i = a.p; i <= a.depth; i += a.p) {
    for (int j = i % a.k; j <= i; j += a.k) sources[i].push_back(j);
  }
  return sources;
}

// KxP on the sequence of every P-th output.
DepthSources Grouped(const DepthArguments& a) {
  CheckWholePeriods(a);
  DepthSources sources(a.depth + 1);
  for (int i = a.p; i <= a.depth; i += a.p) {
    for (int q = i / a.p % a.k; q <= i / a.p; q += a.k) sources[i].push_back(q * a.p);
  }
  return sources;
}

DepthSources Last(const DepthArguments& a) {
  DepthSources sources(a.depth + 1);
  for (int i = 1; i <= a.depth; ++i) {
    sources[i].push_back(0);
    for (int j = std::max(1, i - a.k + 1); j <= i; ++j) sources[i].push_back(j);
  }
  return sources;
}

DepthSources Final(const DepthArguments& a) {
  CheckWholePeriods(a);
  DepthSources sources(a.depth + 1);
  for (int j = 0; j <= a.depth; j += a.p) sources[a.depth].push_back(j);
  return sources;
}

DepthSources Mask(const DepthArguments& a) {
  std::string rows(a.rows);
  std::replace(rows.begin(), rows.end(), '/', '\n');
  return ParseMask(rows, a.depth, "mask");
}

constexpr DepthForm kForms[] = {
    {"none", "nowhere: the plain Transformer", "", "", None},
    {"KxP", "every P-th block", "every K-th output up to its own", "(such as 1x1 or 4x5)", Dilated},
    {"grouped:KxP", "every P-th block; P divides the depth",
     "as `KxP`, among the outputs of every P-th block", "", Grouped},
    {"last:K", "every block", "the embedding and the last K outputs", "", Last},
    {"final", "the last block", "every output", "", Final},
    {"final:P", "the last block; P divides the depth", "every P-th output", "", Final},
    {"mask:ROWS", "where a row has a 1",
     "X_j where digit j of row i is 1; rows separated by `/`, one per block", "", Mask},
};

constexpr std::string_view kRows = "ROWS";

// One row of a mask; returns an empty string, or what is wrong with it.
std::string ParseMaskRow(std::string_view digits, int depth, int i, std::vector<int>& sources) {
  int column = 0;
  for (char c : digits) {
    if (c == ' ' || c == ',' || c == '\t' || c == '\r') continue;
    if (c != '0' && c != '1') {
      return fmt::format("unexpected character '{}', expected 0 or 1", Printable({&c, 1}));
    }
    if (c == '1') {
      if (column > i) {
        return fmt::format(
            "block {} cannot read X_{}: only outputs up to X_{} exist (the mask must be lower "
            "triangular)",
            i, column, i);
      }
      sources.push_back(column);
    }
    if (++column > depth + 1) return fmt::format("more than {} columns", depth + 1);
  }
  if (!sources.empty() && sources.back() != i) {
    return fmt::format("block {} must read its own output X_{} where it reads anything", i, i);
  }
  return "";
}

// The digits at the front of `text`, at most six.
std::string_view Digits(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  return end <= 6 ? text.substr(0, end) : std::string_view();
}

// Whether `spec` has the form; fills what stands for its letters.
bool Matches(std::string_view form, DepthArguments& arguments) {
  std::string_view rest = arguments.spec;
  for (size_t at = 0; at < form.size(); ++at) {
    if (form.substr(at) == kRows) {
      arguments.rows = rest;
      return true;
    }
    if (form[at] == 'K' || form[at] == 'P') {
      const std::string_view digits = Digits(rest);
      if (digits.empty()) return false;
      (form[at] == 'K' ? arguments.k : arguments.p) =
          static_cast<int>(ParseInt("depth pattern", digits, 0, 999999));
      rest.remove_prefix(digits.size());
    } else {
      if (rest.empty() || rest.front() != form[at]) return false;
      rest.remove_prefix(1);
    }
  }
  return rest.empty();
}

}  // namespace

std::span<const DepthForm> DepthForms() { return kForms; }

std::optional<DepthMatch> MatchDepthForm(std::string_view spec, int depth) {
  for (const DepthForm& form : kForms) {
    DepthMatch match{&form, {}};
    match.arguments.spec = spec;
    match.arguments.depth = depth;
    if (Matches(form.form, match.arguments)) return match;
  }
  return std::nullopt;
}

DepthSources MakeDepthSources(const DepthMatch& match) {
  const DepthArguments& a = match.arguments;
  if (a.k == 0) Wrong(a.spec, "K is 0, expected at least 1");
  if (a.p == 0) Wrong(a.spec, "P is 0, expected at least 1");
  return match.form->make(a);
}

std::string CanonicalSpec(const DepthMatch& match, const DepthSources& sources) {
  const std::string_view form = match.form->form;
  if (form.ends_with(kRows)) return MaskSpec(sources);
  std::string spec;
  for (const char c : form) {
    if (c == 'K') {
      spec += std::to_string(match.arguments.k);
    } else if (c == 'P') {
      spec += std::to_string(match.arguments.p);
    } else {
      spec += c;
    }
  }
  return spec;
}

std::string DepthFormList() {
  std::string list;
  for (const DepthForm& form : kForms) {
    if (form.form.ends_with(kRows)) continue;  // users give the file that it comes from
    list += fmt::format("{}{}{}{}", list.empty() ? "" : ", ", form.form,
                        form.note.empty() ? "" : " ", form.note);
  }
  return list + " or a mask file";
}

std::string DepthFormTable() {
  std::string table = "| pattern | modules after | each reads |\n| --- | --- | --- |\n";
  for (const DepthForm& form : kForms) {
    table += fmt::format("| `{}` | {} | {} |\n", form.form, form.modules, form.sources);
  }
  return table;
}

DepthSources ParseMask(std::string_view text, int depth, std::string_view file_name) {
  if (depth < 1) Throw(ErrorCode::kUsage, "{}: depth is {}, expected at least 1", file_name, depth);
  DepthSources sources(depth + 1);
  int row = 0, line_number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++line_number;
    const std::string_view digits = Trim(line);
    if (digits.empty() || digits.front() == '#') continue;
    if (++row > depth) {
      Throw(ErrorCode::kInvalid, "{}:{}: more rows than the {} blocks of the model", file_name,
            line_number, depth);
    }
    const std::string wrong = ParseMaskRow(digits, depth, row, sources[row]);
    if (!wrong.empty()) Throw(ErrorCode::kInvalid, "{}:{}: {}", file_name, line_number, wrong);
  }
  if (row != depth) {
    Throw(ErrorCode::kInvalid, "{}: {} rows, expected {} (one per block)", file_name, row, depth);
  }
  return sources;
}

std::string MaskSpec(const DepthSources& sources) {
  std::string spec = "mask:";
  for (size_t i = 1; i < sources.size(); ++i) {
    std::string row(i + 1, '0');
    for (int j : sources[i]) row[j] = '1';
    spec += (i > 1 ? "/" : "") + row;
  }
  return spec;
}

}  // namespace denseformer

#include "model/mixer_spec.h"

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr MixerForm kMixers[] = {
    {"static", MixerKind::kStatic, true, false, "one learned scalar per source"},
    {"dynamic", MixerKind::kDynamic, true, false,
     "a learned scalar plus a function of the token's newest output"},
    {"attention", MixerKind::kAttention, true, true,
     "X_i plus a gate times a softmax over what the blocks added"},
    {"attnres", MixerKind::kAttnRes, false, true, "a softmax over what the blocks added"},
};

struct StreamForm {
  std::string_view name;
  std::vector<Stream> streams;
};

const std::vector<StreamForm>& StreamForms() {
  static const std::vector<StreamForm> forms = {
      {"r", {Stream::kResidual}},
      {"rv", {Stream::kResidual, Stream::kValue}},
      {"rqkv", {Stream::kResidual, Stream::kQuery, Stream::kKey, Stream::kValue}},
  };
  return forms;
}

constexpr std::string_view kNorms[] = {"none", "prepost"};

// "a, b or c".
template <class Names>
std::string List(const Names& names) {
  std::string list;
  const size_t count = std::size(names);
  for (size_t i = 0; i < count; ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : i + 1 == count ? " or " : ", ", names[i]);
  }
  return list;
}

std::vector<std::string> NamesOf(const auto& forms) {
  std::vector<std::string> names;
  for (const auto& form : forms) names.emplace_back(form.name);
  return names;
}

// The form of that name.
template <class Forms>
const auto& Find(const char* field, const std::string& name, const Forms& forms) {
  for (const auto& form : forms) {
    if (form.name == name) return form;
  }
  const std::vector<std::string> names = NamesOf(forms);
  Throw(ErrorCode::kUsage, "model.{}: got '{}', expected {}{}", field, name, List(names),
        DidYouMean(name, names));
}

}  // namespace

std::span<const MixerForm> MixerForms() { return kMixers; }

std::string MixerNames() { return List(NamesOf(kMixers)); }
std::string StreamNames() { return List(NamesOf(StreamForms())); }
std::string MixerNormNames() { return List(kNorms); }

MixerSpec ParseMixer(const ModelConfig& config) {
  MixerSpec spec;
  spec.form = &Find("mixer", config.mixer, kMixers);
  spec.streams = Find("streams", config.streams, StreamForms()).streams;
  spec.prepost = config.mixer_norm == kNorms[1];
  if (!spec.prepost && config.mixer_norm != kNorms[0]) {
    Throw(ErrorCode::kUsage, "model.mixer_norm: got '{}', expected {}", config.mixer_norm,
          MixerNormNames());
  }
  if (spec.prepost && spec.kind() != MixerKind::kDynamic) {
    Throw(ErrorCode::kUsage, "model.mixer_norm: prepost goes with model.mixer = dynamic, got {}",
          config.mixer);
  }
  if (config.dwa == "none" && !spec.plain()) {
    Throw(ErrorCode::kUsage,
          "model.mixer: got mixer {} and streams {} with model.dwa = none, which has no modules; "
          "choose a depth pattern such as --dwa 1x1",
          config.mixer, config.streams);
  }
  return spec;
}

}  // namespace denseformer

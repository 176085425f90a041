#include "io/huggingface/huggingface.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "io/weights.h"
#include "model/config_fields.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEndOfText = "<|endoftext|>";

// The id of the end of text among the added tokens of a tokenizer.json.
std::optional<int64_t> EndOfTextId(const std::string& tokenizer) {
  const Json json = Json::parse(tokenizer, nullptr, /*allow_exceptions=*/false);
  const Json added = json.is_object() ? json.value("added_tokens", Json::array()) : Json::array();
  for (const Json& token : added) {
    if (token.is_object() && token.value("content", Json()) == kEndOfText &&
        token.value("id", Json()).is_number_integer()) {
      return token["id"].get<int64_t>();
    }
  }
  return std::nullopt;
}

void AddSpecialIds(std::optional<int64_t> end_of_text, Json& json) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    json[key] = end_of_text ? Json(*end_of_text) : Json();
}

std::string ConfigText(const Model& model, StoredType type, std::optional<int64_t> end_of_text) {
  const char* type_name = type == StoredType::kBF16 ? "bfloat16" : "float32";
  Json json = {{"model_type", "denseformer"},
               {"architectures", {"DenseFormerForCausalLM"}},
               {"auto_map",
                {{"AutoConfig", "modeling_denseformer.DenseFormerConfig"},
                 {"AutoModelForCausalLM", "modeling_denseformer.DenseFormerForCausalLM"}}},
               {"torch_dtype", type_name},
               {"tie_word_embeddings", false},  // there is one tensor, not two to tie
               {"use_cache", true}};
  AddSpecialIds(end_of_text, json);
  VisitFields(model.config(),
              [&](const char* name, const auto& field, const char*) { json[name] = field; });
  Json sources = Json::object();
  for (int i = 1; i <= model.config().n_layer; ++i) {
    if (model.pattern().has_module(i)) sources[std::to_string(i)] = model.pattern().sources(i);
  }
  json["depth_sources"] = std::move(sources);
  return json.dump(2) + "\n";
}

std::string TokenizerConfigText(const ModelConfig& config, bool has_end_of_text) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", config.seq_len},
               {"model_input_names", Json::array({"input_ids", "attention_mask"})},
               {"clean_up_tokenization_spaces", false}};
  if (has_end_of_text) {
    for (const char* key : {"bos_token", "eos_token", "pad_token"}) json[key] = kEndOfText;
  }
  return json.dump(2) + "\n";
}

}  // namespace

RunContent HuggingFaceContent(const Model& model, StoredType type, const std::string& tokenizer) {
  const std::optional<int64_t> end_of_text = EndOfTextId(tokenizer);
  RunContent content;
  content.texts.emplace_back(kConfigFile, ConfigText(model, type, end_of_text));
  content.texts.emplace_back("modeling_denseformer.py", std::string(kHuggingFaceModel));
  Json generation = {{"_from_model_config", false}};
  AddSpecialIds(end_of_text, generation);
  content.texts.emplace_back("generation_config.json", generation.dump(2) + "\n");
  if (!tokenizer.empty()) {
    content.texts.emplace_back(kTokenizerFile, tokenizer);
    content.texts.emplace_back("tokenizer_config.json",
                               TokenizerConfigText(model.config(), end_of_text.has_value()));
  }
  content.tensors = TensorsOf(model.table(), {"", model.weights().data()}, type);
  content.metadata = {{"format", "pt"}};
  return content;
}

}  // namespace denseformer

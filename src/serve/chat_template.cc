#include "serve/chat_template.h"

#include <sstream>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/toml.h"
#include "serve/json.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

constexpr std::string_view kContent = "{content}";

std::vector<std::string> RoleNames(const std::map<std::string, std::string>& roles) {
  std::vector<std::string> names;
  for (const auto& [name, text] : roles) names.push_back(name);
  return names;
}

// Collects text and tokens; what stands between two special tokens is encoded together, so that a
// template and the messages in it are split as one text.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.IsSpecial(id)) special_.emplace_back(tokenizer.TokenBytes(id), id);
    }
  }

  void AddText(std::string_view text) { text_ += text; }

  // Text of the template: names of special tokens are tokens.
  void AddTemplate(std::string_view text) {
    while (!text.empty()) {
      size_t first = std::string_view::npos;
      const std::pair<std::string_view, int32_t>* found = nullptr;
      for (const auto& special : special_) {
        const size_t at = text.find(special.first);
        if (at < first) {
          first = at;
          found = &special;
        }
      }
      AddText(text.substr(0, first));
      if (found == nullptr) return;
      FlushText();
      tokens_.push_back(found->second);
      text.remove_prefix(first + found->first.size());
    }
  }

  std::vector<int32_t> Finish() {
    FlushText();
    return std::move(tokens_);
  }

 private:
  void FlushText() {
    const std::vector<int32_t> more = tokenizer_.Encode(text_);
    tokens_.insert(tokens_.end(), more.begin(), more.end());
    text_.clear();
  }

  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::string_view, int32_t>> special_;
  std::string text_;
  std::vector<int32_t> tokens_;
};

}  // namespace

ChatTemplate ChatTemplate::Parse(std::string_view toml, const std::string& file_name) {
  ChatTemplate result;
  const toml::table table = ParseTomlTable(toml, file_name);
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    if (name == "stop") {
      const toml::array* list = value.as_array();
      for (size_t n = 0; list != nullptr && n < list->size(); ++n) {
        const std::string text = (*list)[n].value_or(std::string());
        if (!text.empty()) result.stop_.push_back(text);
      }
      if (list == nullptr || result.stop_.size() != list->size()) {
        Throw(ErrorCode::kInvalid, "{}: stop: expected a list of strings, none empty", file_name);
      }
      continue;
    }
    const auto text = value.value<std::string>();
    if (!text) Throw(ErrorCode::kInvalid, "{}: {}: expected a string", file_name, Printable(name));
    if (name == "begin") {
      result.begin_ = *text;
    } else if (name == "generation") {
      result.generation_ = *text;
    } else if (text->find(kContent) == std::string::npos) {
      Throw(ErrorCode::kInvalid, "{}: {}: expected a text with {} in it", file_name,
            Printable(name), kContent);
    } else {
      result.roles_[name] = *text;
    }
  }
  if (result.roles_.empty()) {
    Throw(ErrorCode::kInvalid, "{}: no roles; expected lines such as user = \"User: {}\\n\"",
          file_name, kContent);
  }
  return result;
}

std::vector<int32_t> ChatTemplate::Encode(const Tokenizer& tokenizer,
                                          const std::vector<ChatMessage>& messages) const {
  Encoder encoder(tokenizer);
  encoder.AddTemplate(begin_);
  for (const ChatMessage& message : messages) {
    const auto role = roles_.find(message.role);
    if (role == roles_.end()) {
      throw RequestError(400, "messages",
                         fmt::format("messages: role '{}', expected one of {}",
                                     Shortened(message.role), Join(RoleNames(roles_), ", ")));
    }
    const size_t at = role->second.find(kContent);
    encoder.AddTemplate(std::string_view(role->second).substr(0, at));
    encoder.AddText(message.content);
    encoder.AddTemplate(std::string_view(role->second).substr(at + kContent.size()));
  }
  encoder.AddTemplate(generation_);
  return encoder.Finish();
}

}  // namespace denseformer

#include "serve/fields.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

[[noreturn]] void ThrowField(const FieldInfo& info, const std::string& got,
                             const std::string& expected) {
  throw RequestError(400, info.name,
                     fmt::format("{}: got {}, expected {}", info.name, got, expected));
}

// A value in a message: short ones as they are.
std::string Shown(const Json& value) {
  const std::string text = ToText(value);
  return text.size() <= 40 ? text : fmt::format("a {} of {} bytes", value.type_name(), text.size());
}

std::string Number(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value)
             ? fmt::format("{}", static_cast<int64_t>(value))
             : fmt::format("{:g}", value);
}

std::string Range(const FieldInfo& info) {
  if (info.high == kAnySize) return info.low == -kAnySize ? "" : " from " + Number(info.low);
  return fmt::format(" from {} to {}", Number(info.low), Number(info.high));
}

bool IsTokenList(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& token) {
           if (!token.is_number()) return false;
           const double id = token.get<double>();  // 7.0 is a whole number in JSON
           return id >= 0 && id <= INT32_MAX && id == std::floor(id);
         });
}

bool IsStringList(const Json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& text) { return text.is_string(); });
}

bool IsPrompt(const Json& value) {
  if (value.is_string() || IsStringList(value) || IsTokenList(value)) return true;
  return value.is_array() && std::all_of(value.begin(), value.end(), IsTokenList);
}

void CheckNumber(const FieldInfo& info, const Json& value, bool whole) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  // 1.0 is a whole number in JSON.
  const bool fits = whole ? number == std::floor(number) : std::isfinite(number);
  if (!fits || number < info.low || number > info.high) {
    ThrowField(info, Shown(value), (whole ? "a whole number" : "a number") + Range(info));
  }
}

void CheckCount(const FieldInfo& info, const Json& value, const char* what) {
  const double count = value.is_array() ? static_cast<double>(value.size()) : 1;
  if (count < info.low || count > info.high) {
    ThrowField(
        info, fmt::format("{} entries", count),
        fmt::format("{}{}", Number(info.low), fmt::format(" to {} {}", Number(info.high), what)));
  }
}

void CheckMessages(const FieldInfo& info, const Json& value) {
  const char* expected =
      "a list of objects with \"role\" and \"content\" (a string, or a list of text parts)";
  if (!value.is_array()) ThrowField(info, Shown(value), expected);
  for (const Json& message : value) {
    const auto is_text = [](const Json& part) {
      return part.is_object() && part.value("type", Json()) == "text" &&
             part.value("text", Json()).is_string();
    };
    const Json content = message.is_object() ? message.value("content", Json()) : Json();
    const bool fits =
        message.is_object() && message.value("role", Json()).is_string() &&
        (content.is_string() ||
         (content.is_array() && std::all_of(content.begin(), content.end(), is_text)));
    if (!fits) ThrowField(info, Shown(message), expected);
  }
}

Json ListOf(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

Json TokenSchema() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", INT32_MAX}}; }

Json PromptSchema() {
  const Json text = {{"type", "string"}}, tokens = ListOf(TokenSchema());
  // An empty list is each of these.
  return {{"anyOf", {text, ListOf(text), tokens, ListOf(tokens)}}};
}

Json StringsSchema(const FieldInfo& info) {
  const Json text = {{"type", "string"}, {"minLength", 1}};
  Json list = ListOf(text);
  list["maxItems"] = info.high;
  return {{"anyOf", {text, list}}};
}

Json MessagesSchema(const FieldInfo& info) {
  const Json text = {{"type", "string"}};
  const Json part = {{"type", "object"},
                     {"properties", {{"type", {{"const", "text"}}}, {"text", text}}},
                     {"required", {"type", "text"}}};
  Json messages =
      ListOf({{"type", "object"},
              {"properties", {{"role", text}, {"content", {{"anyOf", {text, ListOf(part)}}}}}},
              {"required", {"role", "content"}}});
  messages["minItems"] = info.low;
  messages["maxItems"] = info.high;
  return messages;
}

Json NumberSchema(const FieldInfo& info) {
  Json schema = {{"type", info.type == FieldType::kInteger ? "integer" : "number"}};
  if (std::isfinite(info.low)) schema["minimum"] = info.low;
  if (std::isfinite(info.high)) schema["maximum"] = info.high;
  return schema;
}

Json TypeSchema(const FieldInfo& info) {
  switch (info.type) {
    case FieldType::kBool:
      return {{"type", "boolean"}};
    case FieldType::kInteger:
    case FieldType::kNumber:
      return NumberSchema(info);
    case FieldType::kString:
      return {{"type", "string"}};
    case FieldType::kStrings:
      return StringsSchema(info);
    case FieldType::kTokens:
      return ListOf(TokenSchema());
    case FieldType::kPrompt:
      return PromptSchema();
    case FieldType::kMessages:
      return MessagesSchema(info);
    case FieldType::kObject:
      return {{"type", "object"}};
    case FieldType::kIgnored:
      break;
  }
  return Json::object();
}

// The same, or null.
Json OrNull(Json schema) {
  if (schema.contains("enum")) schema["enum"].push_back(nullptr);
  if (schema.contains("anyOf")) schema["anyOf"].push_back({{"type", "null"}});
  if (schema.contains("type")) schema["type"] = {schema["type"], "null"};
  return schema;
}

}  // namespace

void CheckField(const FieldInfo& info, const Json& value) {
  switch (info.type) {
    case FieldType::kBool:
      if (!value.is_boolean()) ThrowField(info, Shown(value), "true or false");
      break;
    case FieldType::kInteger:
      CheckNumber(info, value, /*whole=*/true);
      break;
    case FieldType::kNumber:
      CheckNumber(info, value, /*whole=*/false);
      break;
    case FieldType::kString:
      if (!value.is_string()) ThrowField(info, Shown(value), "a string");
      break;
    case FieldType::kStrings:
      if (!value.is_string() && !IsStringList(value)) {
        ThrowField(info, Shown(value), "a string or a list of strings");
      }
      CheckCount(info, value, "strings");
      if (value == "" ||
          (value.is_array() && std::find(value.begin(), value.end(), "") != value.end())) {
        ThrowField(info, "an empty string", "at least one character");
      }
      break;
    case FieldType::kTokens:
      if (!IsTokenList(value)) ThrowField(info, Shown(value), "a list of token ids");
      break;
    case FieldType::kPrompt:
      if (!IsPrompt(value)) {
        ThrowField(info, Shown(value),
                   "a string, a list of strings, a list of token ids, or a list of such lists");
      }
      break;
    case FieldType::kMessages:
      CheckMessages(info, value);
      CheckCount(info, value, "messages");
      break;
    case FieldType::kObject:
      if (!value.is_object()) ThrowField(info, Shown(value), "an object");
      break;
    case FieldType::kIgnored:
      break;
  }
}

void ThrowUnknownField(const std::string& name, const std::vector<std::string>& known) {
  const std::string shown = Shortened(name);
  const std::string hint = shown == name ? DidYouMean(name, known) : "";
  throw RequestError(400, shown, fmt::format("{}: unknown parameter{}", shown, hint));
}

void ThrowMissingField(const std::string& name) {
  throw RequestError(400, name, fmt::format("{}: missing", name));
}

Json FieldsSchema(std::span<const FieldInfo> fields) {
  Json properties = Json::object(), required = Json::array();
  for (const FieldInfo& field : fields) {
    Json schema = TypeSchema(field);
    if (field.schema != nullptr) schema.update(Json::parse(field.schema));
    if (field.fallback == nullptr) {
      required.push_back(field.name);
    } else {
      schema = OrNull(std::move(schema));
      if (*field.fallback != '\0') schema["default"] = Json::parse(field.fallback);
    }
    schema["description"] = field.help;
    properties[field.name] = std::move(schema);
  }
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

}  // namespace denseformer

// The fields of a request's JSON as a table: parsing, its errors, /openapi.json and the documents
// come from the same rows.
#ifndef DENSEFORMER_SERVE_FIELDS_H_
#define DENSEFORMER_SERVE_FIELDS_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "serve/json.h"

namespace denseformer {

enum class FieldType {
  kBool,
  kInteger,
  kNumber,
  kString,
  kStrings,   // a string or a list of strings, none of them empty
  kTokens,    // a list of token ids
  kPrompt,    // a string, a list of strings, token ids, or a list of lists of token ids
  kMessages,  // [{"role", "content"}, ...]
  kObject,    // with fields of its own
  kIgnored,   // anything: meant for another server, without effect on an answer here
};

struct FieldInfo {
  const char* name;
  FieldType type;
  double low, high;      // of numbers; of the number of entries of lists
  const char* fallback;  // the default, as JSON; "": none; nullptr: the field is required
  const char* help;
  const char* schema = nullptr;  // what its JSON Schema says beyond that, a JSON object
};

inline constexpr double kAnySize = std::numeric_limits<double>::infinity();

template <class Target>
struct Field {
  FieldInfo info;
  void (*set)(Target& target, const Json& value);  // nullptr: only checked
};

// Throws RequestError (400) that names the field where `value` has the wrong type or range.
void CheckField(const FieldInfo& info, const Json& value);
[[noreturn]] void ThrowUnknownField(const std::string& name, const std::vector<std::string>& known);
[[noreturn]] void ThrowMissingField(const std::string& name);

// Reads the members of `body` into `target`. A null is as good as no member; unknown members and
// missing ones are errors.
template <class Target>
void ReadFields(std::span<const Field<Target>> fields, const Json& body, Target& target) {
  for (const auto& [name, value] : body.items()) {
    const Field<Target>* found = nullptr;
    for (const Field<Target>& field : fields) {
      if (name == field.info.name) found = &field;
    }
    if (found == nullptr) {
      std::vector<std::string> known;
      for (const Field<Target>& field : fields) known.push_back(field.info.name);
      ThrowUnknownField(name, known);
    }
    if (value.is_null()) continue;
    CheckField(found->info, value);
    if (found->set != nullptr) found->set(target, value);
  }
  for (const Field<Target>& field : fields) {
    const auto member = body.find(field.info.name);
    if (field.info.fallback == nullptr && (member == body.end() || member->is_null())) {
      ThrowMissingField(field.info.name);
    }
  }
}

// The rows without their setters, for schemas.
template <class Target>
std::vector<FieldInfo> Infos(std::span<const Field<Target>> fields) {
  std::vector<FieldInfo> infos;
  for (const Field<Target>& field : fields) infos.push_back(field.info);
  return infos;
}

// The JSON Schema of an object with these fields and no others.
Json FieldsSchema(std::span<const FieldInfo> fields);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_FIELDS_H_

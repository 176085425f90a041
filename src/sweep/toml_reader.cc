#include "sweep/toml_reader.h"

#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace denseformer {
namespace {

std::vector<std::string> KeysOf(const toml::table& table) {
  std::vector<std::string> keys;
  for (const auto& [key, node] : table) keys.emplace_back(key.str());
  return keys;
}

}  // namespace

TomlReader::TomlReader(const toml::table& table, const toml::table* variables, std::string path)
    : table_(table), variables_(variables), path_(std::move(path)) {}

std::string TomlReader::Where(const std::string& key) const {
  const toml::node* node = key.empty() ? nullptr : table_.get(key);
  const auto line = (node != nullptr ? node->source() : table_.source()).begin.line;
  return line > 0 ? fmt::format("{}:{}", path_, line) : path_;
}

void TomlReader::WrongType(const std::string& key, const char* expected) const {
  Throw(ErrorCode::kInvalid, "{}: {}: expected {}", Where(key), key, expected);
}

const toml::node* TomlReader::Resolve(const toml::node& node, const std::string& where) {
  const auto* text = node.as_string();
  if (text == nullptr || !text->get().starts_with("$")) return &node;
  const std::vector<std::string> parts = Split(text->get().substr(1), '*');
  const std::string name(Trim(parts[0]));
  const toml::node* variable = variables_ == nullptr ? nullptr : variables_->get(name);
  if (variable == nullptr) {
    Throw(ErrorCode::kInvalid, "{}: unknown variable '${}'{}; the scale defines: {}", where,
          Printable(name), variables_ == nullptr ? "" : DidYouMean(name, KeysOf(*variables_)),
          variables_ == nullptr ? "nothing" : Printable(Join(KeysOf(*variables_), ", ")));
  }
  if (parts.size() == 1) return variable;
  const std::optional<double> value = variable->value<double>();
  if (parts.size() != 2 || !value) {
    Throw(ErrorCode::kInvalid, "{}: got '{}', expected \"$name\" or \"$number * FACTOR\"", where,
          Printable(text->get()));
  }
  double product = 0;
  try {
    product = *value * ParseDouble("factor", Trim(parts[1]), -1e9, 1e9);
  } catch (const Error& error) {
    Throw(ErrorCode::kInvalid, "{}: {}", where, error.what());
  }
  // A multiple of a whole number is a whole number: steps, blocks.
  if (variable->is_integer()) {
    if (std::abs(product) > 0x1p62) {
      Throw(ErrorCode::kInvalid, "{}: '{}' is {:g}, too large for a whole number", where,
            Printable(text->get()), product);
    }
    computed_.push_back(std::make_unique<toml::value<int64_t>>(std::llround(product)));
  } else {
    computed_.push_back(std::make_unique<toml::value<double>>(product));
  }
  return computed_.back().get();
}

const toml::node* TomlReader::Node(const std::string& key) {
  read_.insert(key);
  const toml::node* node = table_.get(key);
  return node == nullptr ? nullptr : Resolve(*node, Where(key));
}

std::optional<std::string> TomlReader::Text(const std::string& key) {
  const toml::node* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_string()) WrongType(key, "a string");
  return node->as_string()->get();
}

std::optional<double> TomlReader::Number(const std::string& key) {
  const toml::node* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (!IsFiniteNumber(*node)) WrongType(key, "a finite number");
  return node->value<double>();
}

std::optional<std::vector<int64_t>> TomlReader::Integers(const std::string& key) {
  const toml::node* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_array()) WrongType(key, "a list of whole numbers");
  std::vector<int64_t> values;
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_integer()) WrongType(key, "a list of whole numbers");
    values.push_back(element.as_integer()->get());
  }
  return values;
}

std::optional<std::vector<std::string>> TomlReader::Texts(const std::string& key) {
  const toml::node* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_array()) WrongType(key, "a list of strings");
  std::vector<std::string> values;
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_string()) WrongType(key, "a list of strings");
    values.push_back(element.as_string()->get());
  }
  return values;
}

std::optional<std::vector<std::string>> TomlReader::Values(const std::string& key) {
  const toml::node* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_array() || node->as_array()->empty()) WrongType(key, "a list with values");
  std::vector<std::string> values;
  for (const toml::node& element : *node->as_array()) {
    values.push_back(ValueText(*Resolve(element, Where(key)), Where(key)));
  }
  return values;
}

const toml::table* TomlReader::Table(const std::string& key) {
  const toml::node* node = Node(key);
  if (node != nullptr && !node->is_table()) WrongType(key, "a table");
  return node == nullptr ? nullptr : node->as_table();
}

std::vector<const toml::table*> TomlReader::Tables(const std::string& key) {
  const toml::node* node = Node(key);
  std::vector<const toml::table*> tables;
  if (node == nullptr) return tables;
  if (!node->is_array()) WrongType(key, "tables, [[...]]");
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_table()) WrongType(key, "tables, [[...]]");
    tables.push_back(element.as_table());
  }
  return tables;
}

void TomlReader::CheckAllRead() const {
  for (const auto& [key, node] : table_) {
    const std::string name(key.str());
    if (read_.contains(name)) continue;
    Throw(ErrorCode::kInvalid, "{}:{}: unknown key '{}'{}", path_, node.source().begin.line,
          Printable(name), DidYouMean(name, {read_.begin(), read_.end()}));
  }
}

bool IsFiniteNumber(const toml::node& node) {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  return value && std::isfinite(*value);
}

std::string ValueText(const toml::node& node, const std::string& where) {
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_string()) return value->get();
  Throw(ErrorCode::kInvalid, "{}: expected a number, a string, true or false", where);
}

}  // namespace denseformer

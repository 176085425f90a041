// Reading TOML tables with variables, strictly: what is not asked for is an error.
#ifndef DENSEFORMER_SWEEP_TOML_READER_H_
#define DENSEFORMER_SWEEP_TOML_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/toml.h"

namespace denseformer {

// One table. `variables` (null: none) replaces values "$name" and "$name * NUMBER". Both outlive
// it.
class TomlReader {
 public:
  TomlReader(const toml::table& table, const toml::table* variables, std::string path);

  // The value of a key, with variables replaced; nothing where the key is missing. Throws kInvalid
  // for a value of another type.
  std::optional<std::string> Text(const std::string& key);
  std::optional<double> Number(const std::string& key);  // finite
  std::optional<std::vector<int64_t>> Integers(const std::string& key);
  std::optional<std::vector<std::string>> Texts(const std::string& key);
  const toml::table* Table(const std::string& key);
  std::vector<const toml::table*> Tables(const std::string& key);
  // The elements of a list, each as text ("0.003", "1x1").
  std::optional<std::vector<std::string>> Values(const std::string& key);
  // Any node; the reader keeps a computed value ("$steps * 1.5").
  const toml::node* Node(const std::string& key);

  // Throws kInvalid for a key that was not asked for.
  void CheckAllRead() const;

  // "file.toml:12", for messages about a key or about the table.
  std::string Where(const std::string& key = "") const;
  const toml::table& table() const { return table_; }

 private:
  // The node with variables replaced.
  const toml::node* Resolve(const toml::node& node, const std::string& where);
  [[noreturn]] void WrongType(const std::string& key, const char* expected) const;

  const toml::table& table_;
  const toml::table* variables_;
  std::string path_;
  std::set<std::string> read_;
  std::vector<std::unique_ptr<toml::node>> computed_;
};

// Neither infinite nor NaN, which TOML can write.
bool IsFiniteNumber(const toml::node& node);

// A number, text or truth value as `denseformer train --set` takes it.
std::string ValueText(const toml::node& node, const std::string& where);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_TOML_READER_H_

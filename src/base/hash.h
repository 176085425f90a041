// Checksums of files and buffers: XXH3, 128 bits, as 32 hexadecimal digits. They detect damage, not
// malice.
#ifndef DENSEFORMER_BASE_HASH_H_
#define DENSEFORMER_BASE_HASH_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace denseformer {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Add(const void* data, size_t size);
  void Add(std::string_view text) { Add(text.data(), text.size()); }
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string HashBytes(const void* data, size_t size);
std::string HashFile(const std::string& path);

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_HASH_H_

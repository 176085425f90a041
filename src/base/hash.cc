#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/file.h"

namespace denseformer {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    DF_CHECK(xxh != nullptr);
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

void Hasher::Add(const void* data, size_t size) {
  if (size > 0) XXH3_128bits_update(state_->xxh, data, size);
}

std::string Hasher::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string HashBytes(const void* data, size_t size) {
  Hasher hasher;
  hasher.Add(data, size);
  return hasher.Hex();
}

std::string HashFile(const std::string& path) {
  const MappedFile file(path);
  return HashBytes(file.data(), file.size());
}

}  // namespace denseformer

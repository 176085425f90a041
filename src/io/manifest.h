// Manifests: the size and the hash of files of one directory, so that damage can be told.
//
//   {"format": "denseformer-manifest", "version": 1,
//    "files": {NAME: {"size": BYTES, "xxh3": 32 HEX DIGITS}, ...}}
//
// A manifest is valid only in exactly the text that ToText gives, so that no byte of it can change
// unnoticed.
#ifndef DENSEFORMER_IO_MANIFEST_H_
#define DENSEFORMER_IO_MANIFEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace denseformer {

inline constexpr const char* kManifestFile = "manifest.json";

struct ManifestEntry {
  uint64_t size = 0;
  std::string hash;
};

class Manifest {
 public:
  // Reads DIRECTORY/manifest.json; kCorrupt where it is not exactly what ToText gives, kNotFound
  // where it is missing.
  static Manifest Read(const std::string& directory);

  std::string ToText() const;
  const std::map<std::string, ManifestEntry>& files() const { return files_; }

  // Writes DIRECTORY/NAME by `write` (which gets a function that takes bytes), syncs it and notes
  // size and hash.
  using Sink = std::function<void(const void* data, size_t size)>;
  void WriteFile(const std::string& directory, const std::string& name,
                 const std::function<void(const Sink&)>& write);
  void WriteFile(const std::string& directory, const std::string& name, std::string_view text);

  // Notes a file of this content that stands there already.
  void Note(const std::string& name, std::string_view content);

  // Writes and syncs the manifest itself.
  void WriteTo(const std::string& directory) const;

  // Throws kCorrupt with the first file that is missing or differs. Reads every byte; with
  // `sizes_only` compares sizes.
  void Verify(const std::string& directory, bool sizes_only = false) const;

 private:
  std::map<std::string, ManifestEntry> files_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_IO_MANIFEST_H_

// ZIP archives of stored (not compressed) entries, with the 64-bit extension, read in place.
//
//   archive = entry*, central directory, [ZIP64 end record, its locator], end record
// The central directory is the authority (writers that stream leave the local headers incomplete).
#ifndef DENSEFORMER_IO_ZIP_READER_H_
#define DENSEFORMER_IO_ZIP_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/file.h"

namespace denseformer {

class ZipReader {
 public:
  // kCorrupt where the archive is damaged, kUnsupported where it is encrypted or spans files. An
  // entry that is compressed is an error once it is asked for.
  explicit ZipReader(const std::string& path);

  struct Entry {
    uint64_t offset = 0;  // of the local header
    uint64_t size = 0;
    uint32_t crc = 0;
    uint16_t method = 0;
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const std::string& path() const { return file_.path(); }

  // The bytes of an entry, valid as long as this object; kNotFound where there is none. With
  // `check`, kCorrupt where the CRC-32 differs.
  std::string_view Content(std::string_view name, bool check = true) const;

  // Whether a file begins as an archive does.
  static bool LooksLikeZip(const std::string& path);

 private:
  void ReadDirectory();
  void ReadEntry(uint64_t& at, uint64_t end);

  MappedFile file_;
  std::map<std::string, Entry, std::less<>> entries_;
  uint64_t directory_ = 0;  // where the central directory begins: entries end before it
};

}  // namespace denseformer

#endif  // DENSEFORMER_IO_ZIP_READER_H_

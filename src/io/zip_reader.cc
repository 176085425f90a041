#include "io/zip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kEndSize = 22, kLocator64Size = 20, kEnd64Size = 56, kEntrySize = 46;
constexpr uint64_t kMostComment = 65535, kMostEntries = 1'000'000;

// Numbers at places of the file; every access is checked.
class Bytes {
 public:
  explicit Bytes(const MappedFile& file) : file_(file) {}

  template <class T>
  T Get(uint64_t at) const {
    Need(at, sizeof(T));
    T value;
    std::memcpy(&value, file_.data() + at, sizeof(T));
    return value;
  }
  std::string_view Text(uint64_t at, uint64_t size) const {
    Need(at, size);
    return {reinterpret_cast<const char*>(file_.data()) + at, size};
  }

 private:
  void Need(uint64_t at, uint64_t size) const {
    if (at > file_.size() || size > file_.size() - at) {
      Throw(ErrorCode::kCorrupt,
            "{}: ZIP structure points outside the file (offset {}, {} bytes of {})", file_.path(),
            at, size, file_.size());
    }
  }
  const MappedFile& file_;
};

// The offset of the end record, which is the last thing in the file but a comment.
uint64_t FindEnd(const MappedFile& file) {
  const Bytes bytes(file);
  if (file.size() >= kEndSize) {
    const uint64_t last = file.size() - kEndSize;
    const uint64_t first = last > kMostComment ? last - kMostComment : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      if (bytes.Get<uint32_t>(at) == kEndSignature &&
          bytes.Get<uint16_t>(at + 20) == file.size() - at - kEndSize) {
        return at;
      }
    }
  }
  Throw(ErrorCode::kCorrupt, "{}: no end of a ZIP archive: not a PyTorch file, or truncated",
        file.path());
}

}  // namespace

ZipReader::ZipReader(const std::string& path) : file_(path) { ReadDirectory(); }

bool ZipReader::LooksLikeZip(const std::string& path) {
  const MappedFile file(path);
  uint32_t signature = 0;
  if (file.size() >= 4) std::memcpy(&signature, file.data(), 4);
  return signature == kLocalSignature;
}

void ZipReader::ReadDirectory() {
  const Bytes bytes(file_);
  const uint64_t end_record = FindEnd(file_);
  uint64_t count = bytes.Get<uint16_t>(end_record + 10);
  uint64_t size = bytes.Get<uint32_t>(end_record + 12);
  uint64_t directory_end = end_record;
  directory_ = bytes.Get<uint32_t>(end_record + 16);
  uint64_t disks =
      uint64_t{bytes.Get<uint16_t>(end_record + 4)} + bytes.Get<uint16_t>(end_record + 6);
  if (end_record >= kLocator64Size &&
      bytes.Get<uint32_t>(end_record - kLocator64Size) == kLocator64Signature) {
    const uint64_t end64 = bytes.Get<uint64_t>(end_record - kLocator64Size + 8);
    if (bytes.Text(end64, kEnd64Size).size() != kEnd64Size ||
        bytes.Get<uint32_t>(end64) != kEnd64Signature) {
      Throw(ErrorCode::kCorrupt, "{}: no ZIP64 end record at offset {}", path(), end64);
    }
    disks = uint64_t{bytes.Get<uint32_t>(end64 + 16)} + bytes.Get<uint32_t>(end64 + 20);
    count = bytes.Get<uint64_t>(end64 + 32);
    size = bytes.Get<uint64_t>(end64 + 40);
    directory_ = bytes.Get<uint64_t>(end64 + 48);
    directory_end = end64;
  }
  if (disks != 0) Throw(ErrorCode::kUnsupported, "{}: ZIP archive of several files", path());
  if (count > kMostEntries || directory_ > directory_end || size != directory_end - directory_) {
    Throw(ErrorCode::kCorrupt,
          "{}: ZIP directory of {} entries, {} bytes at {} does not end at the end record ({})",
          path(), count, size, directory_, directory_end);
  }
  uint64_t at = directory_;
  for (uint64_t i = 0; i < count; ++i) ReadEntry(at, directory_end);
  if (at != directory_end) {
    Throw(ErrorCode::kCorrupt, "{}: {} bytes after the last entry of the ZIP directory", path(),
          directory_end - at);
  }
}

// One entry of the central directory; `at` moves behind it.
void ZipReader::ReadEntry(uint64_t& at, uint64_t end) {
  const Bytes bytes(file_);
  if (end - at < kEntrySize || bytes.Get<uint32_t>(at) != kEntrySignature) {
    Throw(ErrorCode::kCorrupt, "{}: no ZIP directory entry at offset {}", path(), at);
  }
  const auto flags = bytes.Get<uint16_t>(at + 8);
  Entry entry;
  entry.method = bytes.Get<uint16_t>(at + 10);
  entry.crc = bytes.Get<uint32_t>(at + 16);
  uint64_t compressed = bytes.Get<uint32_t>(at + 20);
  entry.size = bytes.Get<uint32_t>(at + 24);
  const uint64_t name_size = bytes.Get<uint16_t>(at + 28);
  const uint64_t extra_size = bytes.Get<uint16_t>(at + 30);
  const uint64_t comment_size = bytes.Get<uint16_t>(at + 32);
  entry.offset = bytes.Get<uint32_t>(at + 42);
  const std::string name(bytes.Text(at + kEntrySize, name_size));
  // The 64-bit values stand in this order, each only where its 32-bit field is full.
  uint64_t extra = at + kEntrySize + name_size;
  const uint64_t extra_end = extra + extra_size;
  at = extra_end + comment_size;
  if (at > end) Throw(ErrorCode::kCorrupt, "{}: ZIP entry '{}' is truncated", path(), name);
  while (extra + 4 <= extra_end) {
    const auto id = bytes.Get<uint16_t>(extra);
    const uint64_t field_end = extra + 4 + bytes.Get<uint16_t>(extra + 2);
    uint64_t field = extra + 4;
    for (uint64_t* value : {&entry.size, &compressed, &entry.offset}) {
      if (id != 1 || *value != 0xffffffffu || field + 8 > std::min(field_end, extra_end)) continue;
      *value = bytes.Get<uint64_t>(field);
      field += 8;
    }
    extra = field_end;
  }
  if (flags & 1) Throw(ErrorCode::kUnsupported, "{}: ZIP entry '{}' is encrypted", path(), name);
  if (entry.method == 0 && compressed != entry.size) {
    Throw(ErrorCode::kCorrupt, "{}: ZIP entry '{}' is stored, but its sizes {} and {} differ",
          path(), name, compressed, entry.size);
  }
  if (!entries_.emplace(name, entry).second) {
    Throw(ErrorCode::kCorrupt, "{}: ZIP entry '{}' appears twice", path(), name);
  }
}

std::string_view ZipReader::Content(std::string_view name, bool check) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) Throw(ErrorCode::kNotFound, "{}: no entry '{}'", path(), name);
  const Entry& entry = found->second;
  if (entry.method != 0) {
    Throw(ErrorCode::kUnsupported,
          "{}: entry '{}' is compressed; torch.save stores entries as "
          "they are",
          path(), name);
  }
  const Bytes bytes(file_);
  if (bytes.Get<uint32_t>(entry.offset) != kLocalSignature) {
    Throw(ErrorCode::kCorrupt, "{}: no ZIP entry at offset {}", path(), entry.offset);
  }
  const uint64_t name_size = bytes.Get<uint16_t>(entry.offset + 26);
  const uint64_t begin = entry.offset + 30 + name_size + bytes.Get<uint16_t>(entry.offset + 28);
  if (bytes.Text(entry.offset + 30, name_size) != name) {
    Throw(ErrorCode::kCorrupt, "{}: the ZIP entry at offset {} is not '{}'", path(), entry.offset,
          name);
  }
  if (begin > directory_ || entry.size > directory_ - begin) {
    Throw(ErrorCode::kCorrupt, "{}: entry '{}' of {} bytes reaches into the ZIP directory", path(),
          name, entry.size);
  }
  const std::string_view content = bytes.Text(begin, entry.size);
  if (check) {
    const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
    if (crc != entry.crc) {
      Throw(ErrorCode::kCorrupt, "{}: entry '{}' has CRC {:08x}, expected {:08x}: it was altered",
            path(), name, crc, entry.crc);
    }
  }
  return content;
}

}  // namespace denseformer

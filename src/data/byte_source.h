// A file as a stream of bytes, decompressed where its name ends in .zst or .gz.
#ifndef DENSEFORMER_DATA_BYTE_SOURCE_H_
#define DENSEFORMER_DATA_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace denseformer {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Up to `size` bytes of content; fewer only at the end. Throws kCorrupt where compressed data is
  // damaged or ends too early.
  virtual size_t Read(char* data, size_t size) = 0;

  // Bytes taken from the file itself so far.
  virtual uint64_t consumed() const = 0;
};

std::unique_ptr<ByteSource> OpenSource(const std::string& path);

// The name without .zst or .gz.
std::string WithoutCompression(const std::string& path);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_BYTE_SOURCE_H_

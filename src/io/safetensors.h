// safetensors: tensors by name in one file, readable in place.
//
//   file   = u64 n (little-endian, at most 100,000,000), header of n bytes, data
//   header = JSON object that begins with '{', maybe padded with spaces:
//            {"__metadata__": {STRING: STRING, ...},
//             NAME: {"dtype": TYPE, "shape": [INT...], "data_offsets": [BEGIN, END]}, ...}
// Offsets count from the end of the header; the tensors cover the data without holes or overlap and
// the last one ends the file. C order, little-endian.
//
// Files written here have a header padded to 8 bytes, and in the metadata "xxh3": a hash of names,
// types, shapes, the other metadata and all tensor bytes.
#ifndef DENSEFORMER_IO_SAFETENSORS_H_
#define DENSEFORMER_IO_SAFETENSORS_H_

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/stored_tensor.h"

namespace denseformer {

class SafetensorsFile {
 public:
  // Maps the file and checks every rule above; kCorrupt with path and rule otherwise. Tensors point
  // into the mapping, so they live as long as this object.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // By name, in the order of the data.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* Find(std::string_view name) const;  // null where there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Whether the metadata hold the hash of the content.
  bool has_hash() const;
  // Compares it with the content, all bytes; kCorrupt where they differ. Takes little memory.
  void VerifyHash() const;
  // The bytes of a tensor will not be read again soon: they need not stay in memory.
  void Drop(const StoredTensor& tensor) const;

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// What the scales of the rows of a tensor of type I8 are called, behind its name: F32 [rows].
inline constexpr const char* kScaleSuffix = ".scale";

// A tensor to be written: fp32 in memory, `type` in the file: F32, BF16 (rounded to nearest even)
// or I8 (a matrix, quantized row by row as kernels/gemm/frozen.h does; the scales are another
// tensor).
struct TensorToWrite {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  const float* data = nullptr;
};

// Writes a whole file piece by piece to `sink`, with the hash. Needs little memory of its own.
using ByteSink = std::function<void(const void* data, size_t size)>;
void WriteSafetensors(std::span<const TensorToWrite> tensors,
                      const std::map<std::string, std::string>& metadata, const ByteSink& sink);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_SAFETENSORS_H_

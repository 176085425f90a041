// PyTorch files (torch.save since 1.6): a ZIP archive of stored entries
//
//   NAME/data.pkl     a pickle; storages in it are references ('storage', type, KEY, device, count)
//   NAME/data/KEY     the bytes of a storage
//   NAME/byteorder    "little" (since 2.1)
//   NAME/version      "3\n"
// Nothing in the file is executed (pickle.h).
#ifndef DENSEFORMER_IO_PYTORCH_FILE_H_
#define DENSEFORMER_IO_PYTORCH_FILE_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/pickle.h"
#include "io/stored_tensor.h"
#include "io/zip_reader.h"

namespace denseformer {

class PytorchFile {
 public:
  // Reads the state dict: the top-level dict, or its entry "model", "state_dict" or
  // "model_state_dict". Checks the CRC of all that it uses. Tensors point into the mapped file.
  explicit PytorchFile(const std::string& path);

  std::span<const StoredTensor> tensors() const { return tensors_; }

 private:
  StoredTensor TensorOf(const Pickle& pickle, const std::string& name, const PickleValue& value);

  ZipReader zip_;
  std::string prefix_;                                // "NAME/"
  std::map<std::string, std::string_view> storages_;  // by key, checked
  std::vector<StoredTensor> tensors_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_IO_PYTORCH_FILE_H_

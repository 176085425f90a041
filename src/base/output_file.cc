#include "base/output_file.h"

#include <sys/stat.h>

#include "base/file.h"

namespace denseformer {

bool IsStream(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 &&
         (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode) || S_ISFIFO(info.st_mode));
}

void WriteOutputFile(const std::string& path, std::string_view content) {
  if (!IsStream(path)) {
    WriteFileAtomic(path, content);
    return;
  }
  OutputFile file(path);
  file.Write(content);
  file.Close();
}

}  // namespace denseformer

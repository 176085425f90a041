#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// "MemAvailable:   123 kB"
int64_t MachineAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

// A file of one number; "max" and a missing file are unknown.
int64_t ReadNumber(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnknown;
}

// What the control group of a container leaves; pages of files count as used there, though the
// system gives the inactive ones back.
int64_t ContainerAvailable() {
  const int64_t most = ReadNumber("/sys/fs/cgroup/memory.max");
  const int64_t used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (most == kUnknown || used == kUnknown) return kUnknown;
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  int64_t value = 0, cached = 0;
  while (file >> name >> value) {
    if (name == "inactive_file") cached = value;
  }
  return std::max<int64_t>(0, most - used + cached);
}

}  // namespace

int64_t AvailableMemory() { return std::min(MachineAvailable(), ContainerAvailable()); }

void RequireMemory(const std::string& what, int64_t bytes, const std::string& remedy) {
  const int64_t available = AvailableMemory();
  if (bytes <= available) return;
  Throw(ErrorCode::kUnsupported, "{} needs about {} of memory, and {} are free here; {}", what,
        HumanBytes(static_cast<double>(bytes)), HumanBytes(static_cast<double>(available)), remedy);
}

}  // namespace denseformer

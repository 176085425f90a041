#include "base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

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

// What the limit on the address space leaves.
int64_t AddressSpaceAvailable() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  if (!(file >> pages)) return kUnknown;
  return static_cast<int64_t>(limit.rlim_cur) - pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

int64_t AvailableMemory() {
  // Stacks, code made at run time and the heaps of threads are in no estimate.
  constexpr int64_t kReserve = int64_t{64} << 20;
  const int64_t space = AddressSpaceAvailable();
  return std::min({MachineAvailable(), ContainerAvailable(),
                   space == kUnknown ? kUnknown : std::max<int64_t>(0, space - kReserve)});
}

void RequireAddressSpace(const std::string& what, int64_t bytes) {
  const int64_t available = AddressSpaceAvailable();
  if (bytes <= available) return;
  Throw(ErrorCode::kUnsupported,
        "not enough memory: {} needs about {} of address space, and its limit leaves {}; raise it "
        "(ulimit -v), or use fewer threads",
        what, HumanBytes(static_cast<double>(bytes)),
        HumanBytes(static_cast<double>(std::max<int64_t>(0, available))));
}

void RequireMemory(const std::string& what, int64_t bytes, const std::string& remedy) {
  const int64_t available = AvailableMemory();
  if (bytes <= available) return;
  Throw(ErrorCode::kUnsupported, "{} needs about {} of memory, and {} are free here; {}", what,
        HumanBytes(static_cast<double>(bytes)), HumanBytes(static_cast<double>(available)), remedy);
}

int64_t ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return file >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

int64_t PeakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace denseformer

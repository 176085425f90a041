#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace denseformer {
namespace {

IoFault& Fault() {
  static IoFault fault;
  return fault;
}

// The error of `operation` as the test wants it, or 0.
int InjectedError(IoOperation operation, const std::string& path) {
  return Fault() ? Fault()(operation, path) : 0;
}

// Runs `call` (which returns -1 and sets errno on failure) unless a fault is injected; returns
// errno.
template <class F>
int Attempt(IoOperation operation, const std::string& path, F call) {
  if (const int injected = InjectedError(operation, path)) return injected;
  for (;;) {
    if (call() != -1) return 0;
    if (errno != EINTR) return errno;
  }
}

struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

// The state of an open file, which must not be a directory.
struct stat Inspect(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) ThrowErrno(errno, "cannot read {}", path);
  if (S_ISDIR(info.st_mode)) {
    Throw(ErrorCode::kInvalid, "{} is a directory, expected a file", path);
  }
  return info;
}

std::string Parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string TemporarySuffix() { return fmt::format(".tmp-{}", getpid()); }

// The name that a user knows a file by: without what AtomicFile puts behind it.
std::string Shown(std::string path) {
  const std::string suffix = TemporarySuffix();
  if (path.ends_with(suffix)) path.resize(path.size() - suffix.size());
  return path;
}

// The file that `path` leads to, which need not exist.
std::string FollowLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::filesystem::path target = path;
  for (int links = 0; std::filesystem::is_symlink(target); ++links) {
    if (links == kMostLinks) ThrowErrno(ELOOP, "cannot write {}", path);
    // A relative link starts from its own directory; an absolute one replaces it.
    target = target.parent_path() / std::filesystem::read_symlink(target);
  }
  return target.string();
}

}  // namespace

void SetIoFaultForTesting(IoFault fault) { Fault() = std::move(fault); }

std::string ReadFile(const std::string& path, size_t most) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) ThrowErrno(errno, "cannot open {}", path);
  const struct stat info = Inspect(file.fd, path);
  // The size is a hint: a pipe has none. One byte more than it shows the end without another turn.
  const size_t expected = static_cast<size_t>(std::max<off_t>(info.st_size, 0));
  std::string content;
  size_t size = 0;
  for (;;) {
    if (expected > most || size > most) {
      Throw(ErrorCode::kInvalid, "{}: {} bytes, expected at most {}", path,
            std::max(expected, size), most);
    }
    if (size == content.size()) content.resize(std::max(expected + 1, 2 * size + 4096));
    const ssize_t got = read(file.fd, content.data() + size, content.size() - size);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowErrno(errno, "cannot read {}", path);
    size += static_cast<size_t>(got);
  }
  content.resize(size);
  return content;
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) ThrowErrno(errno, "cannot open {}", path_);
}

InputFile::~InputFile() { close(fd_); }

size_t InputFile::Read(void* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd_, static_cast<char*>(data) + done, size - done);
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      ThrowErrno(errno, "cannot read {}", path_);
    }
  }
  return done;
}

OutputFile::OutputFile(std::string path, bool append) : path_(std::move(path)) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC);
  const int error = Attempt(IoOperation::kOpen, path_, [&] {
    fd_ = open(path_.c_str(), flags, 0666);
    return fd_;
  });
  if (error != 0) ThrowErrno(error, "cannot open {} for writing", Shown(path_));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

void OutputFile::Write(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t written = 0;
    const int error = Attempt(IoOperation::kWrite, path_, [&] {
      // One call moves at most 2 GB on Linux, and a fault should be able to strike between two.
      written = write(fd_, from, std::min<size_t>(size, size_t{1} << 30));
      return written;
    });
    if (error != 0 || written <= 0) {
      ThrowErrno(error != 0 ? error : ENOSPC, "cannot write to {}", Shown(path_));
    }
    from += written;
    size -= static_cast<size_t>(written);
    size_ += static_cast<uint64_t>(written);
  }
}

void OutputFile::Sync() {
  const int error = Attempt(IoOperation::kSync, path_, [&] { return fsync(fd_); });
  if (error != 0) ThrowErrno(error, "cannot sync {}", Shown(path_));
}

void OutputFile::Close() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) return;
  const int error = InjectedError(IoOperation::kClose, path_);
  if (close(fd) != 0 || error != 0)
    ThrowErrno(error != 0 ? error : errno, "cannot close {}", Shown(path_));
}

AtomicFile::AtomicFile(std::string path) : path_(FollowLinks(path)) {
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    Throw(ErrorCode::kInvalid, "{} is {}, expected a file", path,
          S_ISDIR(info.st_mode) ? "a directory" : "a device or a pipe");
  }
  if (!std::filesystem::is_directory(Parent(path_))) {
    Throw(ErrorCode::kNotFound, "cannot write {}: there is no directory {}", path, Parent(path_));
  }
  temporary_ = path_ + TemporarySuffix();
  out_ = std::make_unique<OutputFile>(temporary_);
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::Commit() {
  out_->Sync();
  out_->Close();
  RenameDurably(temporary_, path_);
  committed_ = true;
}

void WriteFileAtomic(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.Write(content);
  file.Commit();
}

void RenameDurably(const std::string& from, const std::string& to) {
  const int error =
      Attempt(IoOperation::kRename, to, [&] { return rename(from.c_str(), to.c_str()); });
  if (error != 0) ThrowErrno(error, "cannot rename {} to {}", from, to);
  SyncDirectory(Parent(to));
}

void SyncDirectory(const std::string& directory) {
  const Descriptor opened(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.fd < 0) ThrowErrno(errno, "cannot open directory {}", directory);
  const int error =
      Attempt(IoOperation::kSyncDirectory, directory, [&] { return fsync(opened.fd); });
  // Some file systems do not support fsync on a directory; nothing more can be done there.
  if (error != 0 && error != EINVAL) ThrowErrno(error, "cannot sync directory {}", directory);
}

void RemoveFile(const std::string& path) {
  const int error = Attempt(IoOperation::kRemove, path, [&] { return unlink(path.c_str()); });
  if (error != 0 && error != ENOENT) ThrowErrno(error, "cannot remove {}", path);
}

void TruncateFile(const std::string& path, uint64_t size) {
  if (FileSize(path) < size) {
    Throw(ErrorCode::kCorrupt, "{}: {} bytes, expected at least {}", path, FileSize(path), size);
  }
  const int error = Attempt(IoOperation::kTruncate, path,
                            [&] { return truncate(path.c_str(), static_cast<off_t>(size)); });
  if (error != 0) ThrowErrno(error, "cannot truncate {}", path);
  OutputFile(path, /*append=*/true).Sync();
}

void RemoveTree(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code status;
  if (fs::is_directory(fs::symlink_status(path, status))) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, status)) {
      RemoveTree(entry.path().string());
    }
    if (status) ThrowErrno(status.value(), "cannot list {}", path);
    const int error = Attempt(IoOperation::kRemove, path, [&] { return rmdir(path.c_str()); });
    if (error != 0 && error != ENOENT) ThrowErrno(error, "cannot remove {}", path);
  } else {
    RemoveFile(path);
  }
}

void MakeDirectory(const std::string& path) {
  const int error =
      Attempt(IoOperation::kMakeDirectory, path, [&] { return mkdir(path.c_str(), 0777); });
  if (error == EEXIST && std::filesystem::is_directory(path)) return;
  if (error != 0) ThrowErrno(error, "cannot make directory {}", path);
  SyncDirectory(Parent(path));
}

bool LinkFile(const std::string& from, const std::string& to) {
  const int error = Attempt(IoOperation::kLink, to, [&] { return link(from.c_str(), to.c_str()); });
  if (error == EPERM || error == EXDEV || error == EOPNOTSUPP || error == EMLINK) return false;
  if (error != 0) ThrowErrno(error, "cannot link {} to {}", from, to);
  return true;
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

uint64_t FileSize(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) ThrowErrno(errno, "cannot read {}", path);
  return static_cast<uint64_t>(info.st_size);
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Without O_NONBLOCK the open of a named pipe would wait for its writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) ThrowErrno(errno, "cannot open {}", path);
  const struct stat info = Inspect(file.fd, path);
  if (!S_ISREG(info.st_mode)) {
    Throw(ErrorCode::kInvalid, "{} is a pipe or a device, expected a regular file", path);
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (mapped == MAP_FAILED) ThrowErrno(errno, "cannot map {}", path);
  data_ = static_cast<std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

void MappedFile::Drop(const std::byte* begin, size_t size) const {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = (static_cast<size_t>(begin - data_) + page - 1) / page * page;
  const size_t last = static_cast<size_t>(begin - data_ + size) / page * page;
  if (first < last) madvise(data_ + first, last - first, MADV_DONTNEED);
}

FileLock::FileLock(const std::string& path, const std::string& what) {
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) ThrowErrno(errno, "cannot open {}", path);
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd_);
    if (error == EWOULDBLOCK) {
      Throw(ErrorCode::kBusy, "{} is in use by another process (lock {}); wait for it or stop it",
            what, path);
    }
    ThrowErrno(error, "cannot lock {}", path);
  }
}

FileLock::~FileLock() { close(fd_); }

}  // namespace denseformer

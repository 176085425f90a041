// Files: whole reads, mapped reads, durable and atomic writes, locks.
//
// Every operation that changes the disk passes one fault point, so that tests can make each fail in
// turn (SetIoFaultForTesting). Errors name the path.
#ifndef DENSEFORMER_BASE_FILE_H_
#define DENSEFORMER_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace denseformer {

enum class IoOperation {
  kOpen,
  kWrite,
  kSync,
  kClose,
  kRename,
  kRemove,
  kSyncDirectory,
  kTruncate,
  kMakeDirectory,
  kLink,
};

// Called before each operation with its path; returns 0, or the errno to fail with. Not
// thread-safe: for tests. An empty function switches it off.
using IoFault = std::function<int(IoOperation, const std::string& path)>;
void SetIoFaultForTesting(IoFault fault);

// The whole file as a string; kInvalid where it is larger than `most` bytes. Reads pipes as well.
std::string ReadFile(const std::string& path, size_t most = size_t{1} << 30);

// Reads sequentially, also from pipes.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Up to `size` bytes; fewer only at the end of the file.
  size_t Read(void* data, size_t size);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

// Writes sequentially, without buffering of its own. Whoever creates it removes it on failure
// (AtomicFile does).
class OutputFile {
 public:
  // Creates or truncates `path`; with `append`, continues it.
  explicit OutputFile(std::string path, bool append = false);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(const void* data, size_t size);
  void Write(std::string_view text) { Write(text.data(), text.size()); }
  void Sync();   // fsync
  void Close();  // throws where the destructor would have to be silent
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // bytes written here

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A file that appears under its name whole and durable, or not at all: written to a temporary name
// in the same directory, synced, renamed, directory synced.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // removes the temporary file unless committed
  OutputFile& out() { return *out_; }
  void Write(const void* data, size_t size) { out_->Write(data, size); }
  void Write(std::string_view text) { out_->Write(text); }
  // After a failure the old file, if any, is still there whole; only where the very last operation
  // fails, the sync of the directory, is the new one in its place and its durability unknown.
  void Commit();

 private:
  std::string path_, temporary_;
  std::unique_ptr<OutputFile> out_;
  bool committed_ = false;
};

void WriteFileAtomic(const std::string& path, std::string_view content);

// rename(2), then fsync of the directory that holds `to`.
void RenameDurably(const std::string& from, const std::string& to);
void SyncDirectory(const std::string& directory);
void RemoveFile(const std::string& path);  // a missing file is no error
// Cuts a file to its first `size` bytes and syncs it; it must have at least as many.
void TruncateFile(const std::string& path, uint64_t size);
// A file, or a directory with all it holds; a missing one is no error.
void RemoveTree(const std::string& path);
// Makes one directory and syncs its parent; one that exists is no error.
void MakeDirectory(const std::string& path);
// A second name for a file; false where the file system has no such links.
bool LinkFile(const std::string& from, const std::string& to);
bool FileExists(const std::string& path);
uint64_t FileSize(const std::string& path);

// A regular file mapped for reading. The bytes stay valid for the life of the object; a file that
// another process truncates meanwhile is that process's bug.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Takes the whole pages of `size` bytes at `begin` out of this process's memory; they are read
  // again where they are used again.
  void Drop(const std::byte* begin, size_t size) const;

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// An exclusive lock on a file (created where missing), held until destruction or the death of the
// process; kBusy with `what` in the message where another process holds it.
class FileLock {
 public:
  FileLock(const std::string& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_FILE_H_

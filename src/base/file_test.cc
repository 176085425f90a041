#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error_testing.h"
#include "base/output_file.h"
#include "base/testing.h"

namespace denseformer {
namespace {

// Faults are off again at the end of a test, however it ends.
class FileTest : public testing::Test {
 protected:
  ~FileTest() override { SetIoFaultForTesting({}); }

  // Makes the n-th operation of this kind fail with `error`, counted from 0.
  static void FailOn(IoOperation operation, int error, int n = 0) {
    SetIoFaultForTesting([=](IoOperation now, const std::string&) mutable {
      return now == operation && n-- == 0 ? error : 0;
    });
  }

  const TemporaryDirectory dir_;
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  const std::string content("a\0b\n\xff", 5);
  WriteFileAtomic(dir_ / "x", content);
  EXPECT_EQ(ReadFile(dir_ / "x"), content);
  EXPECT_EQ(FileSize(dir_ / "x"), 5u);
  WriteFileAtomic(dir_ / "x", "");
  EXPECT_EQ(ReadFile(dir_ / "x"), "");
  const std::string large(3 << 20, 'y');
  WriteFileAtomic(dir_ / "x", large);
  EXPECT_EQ(ReadFile(dir_ / "x"), large);
}

TEST_F(FileTest, TruncatesToASize) {
  WriteFileAtomic(dir_ / "x", "12345");
  TruncateFile(dir_ / "x", 3);
  EXPECT_EQ(ReadFile(dir_ / "x"), "123");
  ExpectError(ErrorCode::kCorrupt, "x: 3 bytes, expected at least 4",
              [&] { TruncateFile(dir_ / "x", 4); });
  FailOn(IoOperation::kTruncate, EIO);
  ExpectError(ErrorCode::kIo, "cannot truncate", [&] { TruncateFile(dir_ / "x", 1); });
  EXPECT_EQ(ReadFile(dir_ / "x"), "123");
}

TEST_F(FileTest, ReadFileHoldsItsLimit) {
  WriteFileAtomic(dir_ / "x", "12345");
  EXPECT_EQ(ReadFile(dir_ / "x", 5), "12345");
  ExpectError(ErrorCode::kInvalid, "x: 5 bytes, expected at most 4",
              [&] { ReadFile(dir_ / "x", 4); });
  // A file without a size is counted while it is read.
  ExpectError(ErrorCode::kInvalid, "/dev/zero: ", [&] { ReadFile("/dev/zero", 100000); });
}

TEST_F(FileTest, ReadFileReadsPipes) {
  const std::string path = dir_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string content(100000, 'z');
  std::thread writer([&] { OutputFile(path).Write(content); });
  EXPECT_EQ(ReadFile(path), content);
  writer.join();
}

TEST_F(FileTest, ReadErrorsNameThePath) {
  const std::string missing = dir_ / "missing";
  ExpectError(ErrorCode::kNotFound, "cannot open " + missing + ": No such",
              [&] { ReadFile(missing); });
  ExpectError(ErrorCode::kNotFound, missing, [&] { MappedFile file(missing); });
  ExpectError(ErrorCode::kNotFound, missing, [&] { FileSize(missing); });
  ExpectError(ErrorCode::kInvalid, dir_.path() + " is a directory", [&] { ReadFile(dir_.path()); });
  ExpectError(ErrorCode::kInvalid, "is a directory", [&] { MappedFile file(dir_.path()); });
}

TEST_F(FileTest, FileExists) {
  EXPECT_FALSE(FileExists(dir_ / "x"));
  WriteFileAtomic(dir_ / "x", "");
  EXPECT_TRUE(FileExists(dir_ / "x"));
  EXPECT_TRUE(FileExists(dir_.path()));
}

TEST_F(FileTest, MappedFileOutlivesTheName) {
  WriteFileAtomic(dir_ / "x", "hello");
  const MappedFile file(dir_ / "x");
  RemoveFile(dir_ / "x");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "hello");
  EXPECT_EQ(file.path(), dir_ / "x");
}

TEST_F(FileTest, MappedFileOfNothing) {
  WriteFileAtomic(dir_ / "x", "");
  EXPECT_EQ(MappedFile(dir_ / "x").size(), 0u);
}

TEST_F(FileTest, MappedFileRefusesPipesAndDevices) {
  const std::string path = dir_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectError(ErrorCode::kInvalid, "expected a regular file", [&] { MappedFile file(path); });
  ExpectError(ErrorCode::kInvalid, "expected a regular file",
              [&] { MappedFile file("/dev/null"); });
}

TEST_F(FileTest, OutputFileTruncatesOrAppends) {
  const std::string path = dir_ / "x";
  {
    OutputFile file(path);
    file.Write("abc");
    file.Write("", 0);
    file.Write("def");
    EXPECT_EQ(file.size(), 6u);
    file.Close();
    file.Close();
  }
  EXPECT_EQ(ReadFile(path), "abcdef");
  {
    OutputFile file(path, /*append=*/true);
    file.Write("g");
    EXPECT_EQ(file.size(), 1u);
  }
  EXPECT_EQ(ReadFile(path), "abcdefg");
  OutputFile{path};
  EXPECT_EQ(ReadFile(path), "");
}

TEST_F(FileTest, OutputFileErrors) {
  ExpectError(ErrorCode::kNotFound, "cannot open " + dir_ / "no/x" + " for writing: No such file",
              [&] { OutputFile file(dir_ / "no/x"); });
  ExpectError(ErrorCode::kIo, "/dev/full: No space left on device",
              [] { OutputFile("/dev/full").Write("x"); });
  FailOn(IoOperation::kClose, EIO);
  OutputFile file(dir_ / "x");
  ExpectError(ErrorCode::kIo, "cannot close", [&] { file.Close(); });
}

TEST_F(FileTest, AtomicFileAppearsOnlyOnCommit) {
  WriteFileAtomic(dir_ / "x", "old");
  {
    AtomicFile file(dir_ / "x");
    file.Write("new and unfinished");
    EXPECT_EQ(ReadFile(dir_ / "x"), "old");
  }
  EXPECT_EQ(ReadFile(dir_ / "x"), "old");
  EXPECT_EQ(dir_.List(), std::vector<std::string>{"x"});
  AtomicFile file(dir_ / "x");
  file.Write("new");
  file.Commit();
  EXPECT_EQ(ReadFile(dir_ / "x"), "new");
  EXPECT_EQ(dir_.List(), std::vector<std::string>{"x"});
}

TEST_F(FileTest, AtomicFileKeepsTheOrderThatMakesItDurable) {
  std::vector<IoOperation> seen;
  SetIoFaultForTesting([&](IoOperation operation, const std::string&) {
    seen.push_back(operation);
    return 0;
  });
  WriteFileAtomic(dir_ / "x", "content");
  EXPECT_EQ(seen, (std::vector<IoOperation>{IoOperation::kOpen, IoOperation::kWrite,
                                            IoOperation::kSync, IoOperation::kClose,
                                            IoOperation::kRename, IoOperation::kSyncDirectory}));
}

TEST_F(FileTest, EveryFaultLeavesTheOldFileAndNothingElse) {
  for (IoOperation operation : {IoOperation::kOpen, IoOperation::kWrite, IoOperation::kSync,
                                IoOperation::kClose, IoOperation::kRename}) {
    SetIoFaultForTesting({});
    WriteFileAtomic(dir_ / "x", "old");
    FailOn(operation, ENOSPC);
    ExpectError(ErrorCode::kIo, dir_ / "x", [&] { WriteFileAtomic(dir_ / "x", "new"); });
    EXPECT_EQ(ReadFile(dir_ / "x"), "old") << static_cast<int>(operation);
    EXPECT_EQ(dir_.List(), std::vector<std::string>{"x"}) << static_cast<int>(operation);
  }
  FailOn(IoOperation::kSyncDirectory, EIO);
  ExpectError(ErrorCode::kIo, "cannot sync directory " + dir_.path() + ": Input/output error",
              [&] { WriteFileAtomic(dir_ / "x", "new"); });
  EXPECT_EQ(ReadFile(dir_ / "x"), "new");
  EXPECT_EQ(dir_.List(), std::vector<std::string>{"x"});
}

TEST_F(FileTest, ASymbolicLinkStaysAndItsTargetIsReplaced) {
  std::filesystem::create_directory(dir_ / "there");
  WriteFileAtomic(dir_ / "there/target", "old");
  std::filesystem::create_symlink("there/target", dir_ / "link");
  std::filesystem::create_symlink(dir_ / "link", dir_ / "second");
  WriteFileAtomic(dir_ / "second", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "second"));
  EXPECT_EQ(ReadFile(dir_ / "there/target"), "new");
  std::filesystem::create_symlink("there/fresh", dir_ / "dangling");
  WriteOutputFile(dir_ / "dangling", "made");
  EXPECT_EQ(ReadFile(dir_ / "there/fresh"), "made");
  std::filesystem::create_symlink("loop", dir_ / "loop");
  ExpectError(ErrorCode::kIo, "symbolic links", [&] { WriteFileAtomic(dir_ / "loop", "x"); });
}

TEST_F(FileTest, DevicesAndPipesAreWrittenToAndNeverReplaced) {
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectError(ErrorCode::kInvalid, "is a device or a pipe, expected a file",
              [&] { WriteFileAtomic(pipe, "x"); });
  std::string got;
  std::thread reader([&] { got = ReadFile(pipe); });
  WriteOutputFile(pipe, "through the pipe");
  reader.join();
  EXPECT_EQ(got, "through the pipe");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  WriteOutputFile("/dev/null", "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  ExpectError(ErrorCode::kIo, "/dev/full: No space left on device",
              [&] { WriteOutputFile("/dev/full", "x"); });
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  std::filesystem::create_directory(dir_ / "folder");
  ExpectError(ErrorCode::kInvalid, "is a directory, expected a file",
              [&] { WriteOutputFile(dir_ / "folder", "x"); });
}

TEST_F(FileTest, AMissingDirectoryIsNamedAsItIs) {
  ExpectError(
      ErrorCode::kNotFound,
      "cannot write " + dir_.path() + "/none/x: there is no directory " + dir_.path() + "/none",
      [&] { WriteFileAtomic(dir_ / "none/x", "new"); });
}

TEST_F(FileTest, AFaultAfterHalfOfTheWrites) {
  WriteFileAtomic(dir_ / "x", "old");
  FailOn(IoOperation::kWrite, EIO, /*n=*/1);
  ExpectError(ErrorCode::kIo, "Input/output error", [&] {
    AtomicFile file(dir_ / "x");
    file.Write("first half");
    file.Write("second half");
    file.Commit();
  });
  EXPECT_EQ(ReadFile(dir_ / "x"), "old");
  EXPECT_EQ(dir_.List(), std::vector<std::string>{"x"});
}

TEST_F(FileTest, AProcessThatDiesLeavesTheOldFile) {
  WriteFileAtomic(dir_ / "x", "old");
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(dir_ / "x");
    file.Write("new");
    file.out().Sync();
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ReadFile(dir_ / "x"), "old");
}

TEST_F(FileTest, FileDescriptorsAreNotLost) {
  const auto open_files = [] {
    int count = 0;
    for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return count;
  };
  const int before = open_files();
  for (IoOperation operation :
       {IoOperation::kOpen, IoOperation::kWrite, IoOperation::kSync, IoOperation::kClose,
        IoOperation::kRename, IoOperation::kSyncDirectory}) {
    FailOn(operation, EIO);
    EXPECT_THROW(WriteFileAtomic(dir_ / "x", "new"), Error);
  }
  SetIoFaultForTesting({});
  EXPECT_THROW(ReadFile(dir_.path()), Error);
  EXPECT_THROW(MappedFile{dir_.path()}, Error);
  { const FileLock lock(dir_ / "lock", "run"); }
  EXPECT_EQ(open_files(), before);
}

TEST_F(FileTest, RenameDurably) {
  WriteFileAtomic(dir_ / "a", "A");
  RenameDurably(dir_ / "a", dir_ / "b");
  EXPECT_FALSE(FileExists(dir_ / "a"));
  EXPECT_EQ(ReadFile(dir_ / "b"), "A");
  ExpectError(ErrorCode::kNotFound, "cannot rename " + dir_ / "a",
              [&] { RenameDurably(dir_ / "a", dir_ / "c"); });
}

TEST_F(FileTest, RelativePathsAreSyncedInTheCurrentDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path());
  WriteFileAtomic("x", "1");
  std::filesystem::current_path(before);
  EXPECT_EQ(ReadFile(dir_ / "x"), "1");
  ExpectError(ErrorCode::kNotFound, "cannot open directory", [&] { SyncDirectory(dir_ / "no"); });
}

TEST_F(FileTest, RemoveFile) {
  RemoveFile(dir_ / "missing");
  WriteFileAtomic(dir_ / "x", "1");
  FailOn(IoOperation::kRemove, EPERM);
  ExpectError(ErrorCode::kIo, "cannot remove " + dir_ / "x", [&] { RemoveFile(dir_ / "x"); });
  EXPECT_TRUE(FileExists(dir_ / "x"));
  RemoveFile(dir_ / "x");
  EXPECT_FALSE(FileExists(dir_ / "x"));
}

TEST_F(FileTest, LockIsExclusive) {
  std::optional<FileLock> lock(std::in_place, dir_ / "lock", "runs/a");
  const auto take = [&] { FileLock second(dir_ / "lock", "runs/a"); };
  ExpectError(ErrorCode::kBusy, "runs/a is in use by another process (lock " + dir_ / "lock" + ")",
              take);
  lock.reset();
  take();
  ExpectError(ErrorCode::kNotFound, "cannot open", [&] { FileLock bad(dir_ / "no/lock", "x"); });
}

TEST_F(FileTest, LockEndsWithItsProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileLock lock(dir_ / "lock", "run");
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ExpectError(ErrorCode::kBusy, "in use", [&] { FileLock lock(dir_ / "lock", "run"); });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  FileLock lock(dir_ / "lock", "run");
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace denseformer

#include "data/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace denseformer {
namespace {

constexpr size_t kBufferBytes = 128 << 10;

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(const std::string& path) : file_(path) {}
  size_t Read(char* data, size_t size) override {
    const size_t got = file_.Read(data, size);
    consumed_ += got;
    return got;
  }
  uint64_t consumed() const override { return consumed_; }

 private:
  InputFile file_;
  uint64_t consumed_ = 0;
};

// What the two decompressors share: a buffer of compressed bytes.
class CompressedSource : public ByteSource {
 public:
  explicit CompressedSource(const std::string& path) : file_(path), buffer_(kBufferBytes) {}
  uint64_t consumed() const override { return consumed_; }

 protected:
  // Refills the empty buffer; false at the end of the file.
  bool Refill() {
    begin_ = 0;
    end_ = file_.Read(buffer_.data(), buffer_.size());
    consumed_ += end_;
    return end_ > 0;
  }
  [[noreturn]] void ThrowTruncated() const {
    Throw(ErrorCode::kCorrupt, "{}: compressed data ends too early, the file is truncated",
          file_.path());
  }
  [[noreturn]] void ThrowDamaged(const char* reason) const {
    Throw(ErrorCode::kCorrupt, "{}: cannot decompress: {}", file_.path(), reason);
  }

  InputFile file_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is left in the buffer
  uint64_t consumed_ = 0;
};

class ZstdSource : public CompressedSource {
 public:
  explicit ZstdSource(const std::string& path)
      : CompressedSource(path), stream_(ZSTD_createDStream()) {
    DF_CHECK(stream_ != nullptr);
  }

  size_t Read(char* data, size_t size) override {
    ZSTD_outBuffer out{data, size, 0};
    while (out.pos < out.size) {
      if (begin_ == end_ && !Refill()) {
        if (inside_frame_) ThrowTruncated();
        break;
      }
      ZSTD_inBuffer in{buffer_.data(), end_, begin_};
      const size_t status = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(status)) ThrowDamaged(ZSTD_getErrorName(status));
      begin_ = in.pos;
      inside_frame_ = status != 0;
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  bool inside_frame_ = true;  // an empty file is no zstd file
};

class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(const std::string& path) : CompressedSource(path) {
    DF_CHECK(inflateInit2(&stream_, /*windowBits, gzip=*/15 + 16) == Z_OK);
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  size_t Read(char* data, size_t size) override {
    size_t done = 0;
    while (done < size) {
      if (begin_ == end_ && !Refill()) {
        if (inside_member_) ThrowTruncated();
        break;
      }
      // A file may be several members, one behind the other.
      if (!inside_member_) DF_CHECK(inflateReset(&stream_) == Z_OK);
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + begin_);
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      const size_t room = std::min<size_t>(size - done, 1 << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(data + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        ThrowDamaged(stream_.msg != nullptr ? stream_.msg : "not gzip data");
      }
      begin_ = end_ - stream_.avail_in;
      done += room - stream_.avail_out;
      inside_member_ = status != Z_STREAM_END;
    }
    return done;
  }

 private:
  z_stream stream_{};
  bool inside_member_ = true;
};

}  // namespace

std::unique_ptr<ByteSource> OpenSource(const std::string& path) {
  if (path.ends_with(".zst")) return std::make_unique<ZstdSource>(path);
  if (path.ends_with(".gz")) return std::make_unique<GzipSource>(path);
  return std::make_unique<PlainSource>(path);
}

std::string WithoutCompression(const std::string& path) {
  for (const char* ending : {".zst", ".gz"}) {
    if (path.ends_with(ending)) return path.substr(0, path.rfind('.'));
  }
  return path;
}

}  // namespace denseformer

#include "data/prepare.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/signal.h"
#include "data/bpe.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainFile = "train.bin";
constexpr const char* kValFile = "val.bin";
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kLockFile = ".prepare.lock";

// The first document always stays with the training part, which so is never empty.
bool InValidation(uint64_t seed, int64_t document, double share) {
  if (document == 0) return false;
  Random random(seed, HashName("validation split"), static_cast<uint64_t>(document));
  return random.UniformDouble() < share;
}

// The output directory: made where missing, locked, cleaned of what a killed run has left; removed
// again where nothing comes of it.
class OutputDirectory {
 public:
  explicit OutputDirectory(const std::string& path) : path_(path) {
    std::error_code error;
    made_ = fs::create_directories(path, error);
    if (error) ThrowErrno(error.value(), "cannot make the directory {}", path);
    lock_ = std::make_unique<FileLock>(path + "/" + kLockFile, path);
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      for (const char* own : {kTrainFile, kValFile, kTokenizerFile, kMetaFile}) {
        if (name.starts_with(std::string(own) + ".tmp-")) RemoveFile(entry.path().string());
      }
    }
  }
  ~OutputDirectory() {
    std::error_code ignored;
    fs::remove(path_ + "/" + kLockFile, ignored);
    if (made_) fs::remove(path_, ignored);  // only where it is empty
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  std::string File(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  bool made_ = false;
  std::unique_ptr<FileLock> lock_;
};

// One token file in the making.
class TokenWriter {
 public:
  explicit TokenWriter(const std::string& path) : file_(path) {}

  void Write(const std::vector<char>& packed, int width) {
    buffer_.insert(buffer_.end(), packed.begin(), packed.end());
    meta.tokens += static_cast<int64_t>(packed.size()) / width;
    if (buffer_.size() >= kBufferBytes) Flush();
  }
  // Documents may be tiny, so tokens are written in larger blocks.
  void Flush() {
    file_.Write(buffer_.data(), buffer_.size());
    hasher_.Add(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  // Both only after Flush.
  const std::string& temporary_path() { return file_.out().path(); }
  void Commit() { file_.Commit(); }
  std::string Hash() const { return hasher_.Hex(); }

  TokenFileMeta meta;

 private:
  static constexpr size_t kBufferBytes = 256 << 10;
  AtomicFile file_;
  Hasher hasher_;
  std::vector<char> buffer_;
};

template <class T>
void AppendAs(const std::vector<int32_t>& ids, std::vector<char>* packed) {
  const size_t before = packed->size();
  packed->resize(before + ids.size() * sizeof(T));
  char* to = packed->data() + before;
  for (size_t i = 0; i < ids.size(); ++i, to += sizeof(T)) {
    const T token = static_cast<T>(ids[i]);
    std::memcpy(to, &token, sizeof(T));
  }
}

class Preparer {
 public:
  Preparer(const Tokenizer& tokenizer, const PrepareOptions& options)
      : tokenizer_(tokenizer), options_(options), table_(tokenizer.data()) {
    if (tokenizer.end_of_text() < 0) {
      Throw(ErrorCode::kInvalid,
            "data prepare: the tokenizer has no {} token to end documents with", kEndOfTextName);
    }
    type_ = tokenizer.vocab_size() <= 65536 ? TokenType::kUint16 : TokenType::kUint32;
    for (int i = 0; i < NumThreads(); ++i) workers_.push_back(std::make_unique<Worker>(table_));
  }

  // Encodes a whole corpus; `val` is where validation documents go, or null.
  void Run(const std::vector<std::string>& inputs, TokenWriter* train, TokenWriter* val) {
    CorpusReader corpus(FindCorpusFiles(inputs), options_.corpus);
    Progress progress("preparing", "MB", static_cast<double>(corpus.total_bytes()) / 1e6);
    std::vector<Encoded> results;
    for (;;) {
      std::vector<CorpusChunk> batch = corpus.NextBatch();
      if (batch.empty()) break;
      ThrowIfInterrupted("data prepare");
      results.resize(std::max(results.size(), batch.size()));
      ParallelForEach(static_cast<int64_t>(batch.size()), [&](int64_t i, int part) {
        corpus.ParseLine(&batch[i]);
        Encode(batch[i], workers_[part].get(), &results[i]);
      });
      for (size_t i = 0; i < batch.size(); ++i) {
        const bool to_val =
            val != nullptr && InValidation(options_.seed, batch[i].document, options_.val_share);
        TokenWriter& writer = to_val ? *val : *train;
        writer.Write(results[i].packed, TokenTypeSize(type_));
        writer.meta.bytes += static_cast<int64_t>(batch[i].text.size());
        writer.meta.documents += results[i].ends_document;
      }
      progress.Update(static_cast<double>(corpus.consumed_bytes()) / 1e6);
    }
    train->Flush();
    if (val != nullptr) val->Flush();
  }

  TokenType type() const { return type_; }

 private:
  struct Worker {
    explicit Worker(const BpeTable& table) : encoder(table) {}
    BpeEncoder encoder;
    std::vector<int32_t> ids;
  };
  struct Encoded {
    std::vector<char> packed;  // tokens as they are in the file
    bool ends_document = false;
  };

  void Encode(const CorpusChunk& chunk, Worker* worker, Encoded* result) const {
    worker->ids.clear();
    worker->encoder.Encode(chunk.text, &worker->ids);
    // A line of a .jsonl file may hold an empty text: no document.
    result->ends_document = chunk.ends_document && (chunk.json_line == 0 || !chunk.text.empty());
    if (result->ends_document) worker->ids.push_back(tokenizer_.end_of_text());
    result->packed.clear();
    if (type_ == TokenType::kUint16) {
      AppendAs<uint16_t>(worker->ids, &result->packed);
    } else {
      AppendAs<uint32_t>(worker->ids, &result->packed);
    }
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  BpeTable table_;
  TokenType type_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// A corpus of so few documents that none fell to val: moves the last `share` of its tokens from
// train to val.
void SplitTail(const Tokenizer& tokenizer, TokenType type, double share, TokenWriter* train,
               TokenWriter* val) {
  const int width = TokenTypeSize(type);
  const int64_t tail =
      static_cast<int64_t>(std::ceil(static_cast<double>(train->meta.tokens) * share));
  const int64_t keep = train->meta.tokens - tail;
  int64_t tail_bytes = 0, ends = 0;
  bool cut_between_documents = false;
  {
    const MappedFile file(train->temporary_path());
    if (keep > 0) {
      uint32_t last = 0;
      std::memcpy(&last, file.data() + (keep - 1) * width, static_cast<size_t>(width));
      cut_between_documents = static_cast<int32_t>(last) == tokenizer.end_of_text();
    }
    constexpr int64_t kStep = 1 << 16;
    std::vector<char> packed;
    for (int64_t at = keep; at < train->meta.tokens; at += kStep) {
      const int64_t count = std::min(kStep, train->meta.tokens - at);
      const char* from = reinterpret_cast<const char*>(file.data()) + at * width;
      packed.assign(from, from + count * width);
      for (int64_t i = 0; i < count; ++i) {
        uint32_t token = 0;
        std::memcpy(&token, from + i * width, static_cast<size_t>(width));
        tail_bytes += tokenizer.TextLength(static_cast<int32_t>(token));
        ends += static_cast<int32_t>(token) == tokenizer.end_of_text();
      }
      val->Write(packed, width);
    }
    val->Flush();
  }
  fs::resize_file(train->temporary_path(), static_cast<uint64_t>(keep * width));
  // A document that the cut goes through counts on both sides.
  val->meta.documents = ends;
  train->meta.documents -= cut_between_documents ? ends : ends - 1;
  val->meta.bytes = tail_bytes;
  train->meta.tokens = keep;
  train->meta.bytes -= tail_bytes;
  train->meta.hash = HashFile(train->temporary_path());
}

void CheckOptions(const PrepareOptions& options) {
  if (options.inputs.empty()) Throw(ErrorCode::kUsage, "data prepare: no input given");
  if (!(options.val_share >= 0 && options.val_share < 1)) {
    Throw(ErrorCode::kUsage, "data prepare: a validation share of {}, expected 0 up to but not 1",
          options.val_share);
  }
}

void CheckParts(const PrepareOptions& options, const TokenWriter& train, const TokenWriter* val) {
  const int64_t documents = train.meta.documents + (val != nullptr ? val->meta.documents : 0);
  if (documents == 0) {
    Throw(ErrorCode::kInvalid, "data prepare: the corpus is empty, expected some text");
  }
  for (const TokenWriter* part : {&train, val}) {
    if (part == nullptr || part->meta.tokens > 0) continue;
    if (!options.val_inputs.empty()) {
      Throw(ErrorCode::kInvalid, "data prepare: the {} files are empty, expected some text",
            part == val ? "validation" : "training");
    }
    Throw(ErrorCode::kInvalid,
          "data prepare: too little text for a training and a validation part; change --val-share, "
          "or "
          "name files with --val");
  }
}

}  // namespace

DataMeta PrepareData(const Tokenizer& tokenizer, const PrepareOptions& options) {
  CheckOptions(options);
  // Before anything is made on the disk.
  FindCorpusFiles(options.inputs);
  FindCorpusFiles(options.val_inputs);
  Preparer preparer(tokenizer, options);
  const OutputDirectory directory(options.out);
  TokenWriter train(directory.File(kTrainFile));
  std::optional<TokenWriter> val;
  if (!options.val_inputs.empty() || options.val_share > 0) val.emplace(directory.File(kValFile));
  TokenWriter* const val_writer = val ? &*val : nullptr;
  if (options.val_inputs.empty()) {
    preparer.Run(options.inputs, &train, val_writer);
    if (val && train.meta.documents > 0 && val->meta.documents == 0) {
      SplitTail(tokenizer, preparer.type(), options.val_share, &train, val_writer);
    }
  } else {
    preparer.Run(options.inputs, &train, nullptr);
    preparer.Run(options.val_inputs, val_writer, nullptr);
  }
  CheckParts(options, train, val_writer);
  DataMeta meta;
  meta.token_type = preparer.type();
  meta.vocab_size = tokenizer.vocab_size();
  meta.end_of_text = tokenizer.end_of_text();
  meta.tokenizer_file = kTokenizerFile;
  meta.tokenizer_hash = tokenizer.Hash();
  if (train.meta.hash.empty()) train.meta.hash = train.Hash();
  meta.files[kTrainFile] = train.meta;
  if (val) {
    val->meta.hash = val->Hash();
    meta.files[kValFile] = val->meta;
  }
  // meta.json says that the other files belong together, so it goes first and comes last.
  AtomicFile tokenizer_file(directory.File(kTokenizerFile));
  tokenizer_file.Write(tokenizer.ToJson());
  AtomicFile meta_file(directory.File(kMetaFile));
  meta_file.Write(MetaToJson(meta));
  RemoveFile(directory.File(kMetaFile));
  train.Commit();
  if (val) {
    val->Commit();
  } else {
    RemoveFile(directory.File(kValFile));
  }
  tokenizer_file.Commit();
  meta_file.Commit();
  return meta;
}

}  // namespace denseformer

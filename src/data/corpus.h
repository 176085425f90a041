// Corpora as a stream of documents.
//
//   .txt (and any other named file):   documents are separated by lines "<|endoftext|>" and by the
//                                      end of the file
//   .jsonl:                            one object per line, the document is one of its fields
//   each also .zst or .gz
//   a directory:                       its .txt and .jsonl files and those of its folders, by name
//
// A document comes in chunks, so that memory does not depend on its size; chunks are cut where it
// makes no difference to a tokenizer (SafeCut). Only a stretch of 16 MB without any such place is
// cut through.
#ifndef DENSEFORMER_DATA_CORPUS_H_
#define DENSEFORMER_DATA_CORPUS_H_

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"

namespace denseformer {

struct CorpusFile {
  std::string path;
  bool is_jsonl = false;
};

// The files that `paths` name. Throws kNotFound for a path that does not exist and for a directory
// without any text.
std::vector<CorpusFile> FindCorpusFiles(const std::vector<std::string>& paths);

struct CorpusChunk {
  std::string text;           // or the line of a .jsonl file, until ParseLine
  int64_t document = 0;       // number of the document in the whole corpus
  bool ends_document = true;  // whether the document ends here
  int file = 0;
  int64_t json_line = 0;  // number of the line in a .jsonl file, from 1; 0: text
};

struct CorpusOptions {
  std::string field = "text";  // of .jsonl files
  size_t chunk_bytes = 64 << 10;
  size_t batch_bytes = 1 << 20;
};

class CorpusReader {
 public:
  CorpusReader(std::vector<CorpusFile> files, CorpusOptions options);
  ~CorpusReader();

  // The next chunk, or false at the end. Documents without text are left out.
  bool Next(CorpusChunk* chunk);

  // About batch_bytes of chunks, empty at the end. The batch after it is read meanwhile on a thread
  // of its own, so Next must not be called as well.
  std::vector<CorpusChunk> NextBatch();

  // Makes the text of a chunk that is a line of a .jsonl file. Throws kInvalid with file and line.
  // Thread-safe.
  void ParseLine(CorpusChunk* chunk) const;

  // Bytes of the files as they are on the disk: all, and those read up to the last batch given out.
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t consumed_bytes() const { return consumed_bytes_; }

 private:
  struct Batch {
    std::vector<CorpusChunk> chunks;
    uint64_t consumed = 0;
  };

  bool NextText(CorpusChunk* chunk);
  bool NextLine(CorpusChunk* chunk);
  bool OpenNextFile();
  void Fill(size_t size);
  bool TakeText(size_t length, size_t skip, bool ends_document, CorpusChunk* chunk);
  std::string_view Buffered() const { return std::string_view(buffer_).substr(begin_); }
  size_t FindSeparator(std::string_view text, size_t* length) const;
  Batch ReadBatch();

  std::vector<CorpusFile> files_;
  CorpusOptions options_;
  uint64_t total_bytes_ = 0, finished_bytes_ = 0, consumed_bytes_ = 0;
  int file_ = -1;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;           // of what is not given out yet
  bool at_end_ = false;        // the buffer holds the end of the file
  bool at_line_start_ = true;  // where the buffer begins
  bool inside_document_ = false;
  int64_t document_ = 0, line_ = 0;
  std::future<Batch> next_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_CORPUS_H_

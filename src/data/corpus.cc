#include "data/corpus.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/bpe.h"
#include "data/split.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = kEndOfTextName;
constexpr size_t kLookahead = 32;  // a separator with its line ends fits
constexpr size_t kLongestUncut = 16 << 20;
constexpr size_t kLongestLine = size_t{1} << 30;
constexpr size_t kReadBytes = 128 << 10;

bool IsJsonl(const std::string& path) { return WithoutCompression(path).ends_with(".jsonl"); }

bool IsText(const std::string& path) { return WithoutCompression(path).ends_with(".txt"); }

// Moves a cut back so that it does not stand inside a UTF-8 character.
size_t CharacterStart(std::string_view text, size_t cut) {
  for (size_t back = 0; back < 4 && cut > back; ++back) {
    if ((static_cast<unsigned char>(text[cut - back]) & 0xC0) != 0x80) return cut - back;
  }
  return cut;
}

}  // namespace

std::vector<CorpusFile> FindCorpusFiles(const std::vector<std::string>& paths) {
  std::vector<CorpusFile> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) {
      Throw(ErrorCode::kNotFound, "corpus: {} does not exist, expected a file or a directory",
            path);
    }
    if (!fs::is_directory(path)) {
      files.push_back({path, IsJsonl(path)});
      continue;
    }
    std::vector<std::string> found;
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink)) {
      const std::string name = entry.path().string();
      if (entry.is_regular_file() && (IsJsonl(name) || IsText(name))) found.push_back(name);
    }
    if (found.empty()) {
      Throw(ErrorCode::kNotFound,
            "corpus: {} holds no text, expected .txt or .jsonl files (also .zst or .gz)", path);
    }
    std::sort(found.begin(), found.end());
    for (const std::string& name : found) files.push_back({name, IsJsonl(name)});
  }
  return files;
}

CorpusReader::CorpusReader(std::vector<CorpusFile> files, CorpusOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  for (const CorpusFile& file : files_) total_bytes_ += FileSize(file.path);
}

CorpusReader::~CorpusReader() = default;

bool CorpusReader::OpenNextFile() {
  if (source_) finished_bytes_ += source_->consumed();
  source_.reset();
  if (file_ + 1 >= static_cast<int>(files_.size())) return false;
  ++file_;
  source_ = OpenSource(files_[file_].path);
  buffer_.clear();
  begin_ = 0;
  at_end_ = false;
  at_line_start_ = true;
  line_ = 0;
  return true;
}

// Reads until the buffer holds `size` bytes or the end of the file.
void CorpusReader::Fill(size_t size) {
  while (!at_end_ && buffer_.size() - begin_ < size) {
    if (begin_ > 0) {
      buffer_.erase(0, begin_);
      begin_ = 0;
    }
    const size_t before = buffer_.size();
    const size_t wanted = std::max(size - before, kReadBytes);
    buffer_.resize(before + wanted);
    const size_t got = source_->Read(buffer_.data() + before, wanted);
    buffer_.resize(before + got);
    at_end_ = got < wanted;
  }
}

// The first line that is a separator: where it starts, and its length with the line end. npos where
// there is none, or where it may go on behind the text.
size_t CorpusReader::FindSeparator(std::string_view text, size_t* length) const {
  for (size_t at = 0; (at = text.find(kSeparator, at)) != std::string_view::npos; ++at) {
    if (at == 0 ? !at_line_start_ : text[at - 1] != '\n') continue;
    const std::string_view rest = text.substr(at + kSeparator.size());
    const size_t ending = rest.starts_with("\r\n") ? 2 : rest.starts_with("\n") ? 1 : 0;
    if (ending == 0 && !(rest.empty() && at_end_)) continue;
    *length = kSeparator.size() + ending;
    return at;
  }
  return std::string_view::npos;
}

// Gives out `length` bytes and passes over `skip` more. False where that is no chunk at all: an
// empty document.
bool CorpusReader::TakeText(size_t length, size_t skip, bool ends_document, CorpusChunk* chunk) {
  const bool is_chunk = length > 0 || inside_document_;
  if (is_chunk) {
    chunk->text = Buffered().substr(0, length);
    chunk->document = document_;
    chunk->ends_document = ends_document;
    chunk->file = file_;
    chunk->json_line = 0;
    inside_document_ = !ends_document;
    if (ends_document) ++document_;
  }
  begin_ += length + skip;
  // A cut never stands behind a line end, except a forced one, which can split no separator's line.
  at_line_start_ = ends_document;
  return is_chunk;
}

bool CorpusReader::NextText(CorpusChunk* chunk) {
  const size_t chunk_bytes = options_.chunk_bytes;
  for (size_t size = chunk_bytes;; size = std::min(2 * size, kLongestUncut)) {
    Fill(size + kLookahead);
    const std::string_view text = Buffered();
    size_t separator_length = 0;
    const size_t separator = FindSeparator(text, &separator_length);
    if (separator <= chunk_bytes) return TakeText(separator, separator_length, true, chunk);
    if (at_end_ && text.size() <= chunk_bytes) return TakeText(text.size(), 0, true, chunk);
    // Never cut behind a separator that is still to come, nor so near the end of the buffer that a
    // separator may have begun unseen.
    const size_t limit = std::min({size, separator, text.size() - (at_end_ ? 0 : kLookahead)});
    size_t cut = SafeCut(text, std::min(limit, chunk_bytes));
    if (cut == 0) cut = SafeCut(text, limit);
    if (cut > 0) return TakeText(cut, 0, false, chunk);
    if (separator != std::string_view::npos) {
      return TakeText(separator, separator_length, true, chunk);
    }
    if (at_end_) return TakeText(text.size(), 0, true, chunk);
    if (size == kLongestUncut) return TakeText(CharacterStart(text, limit), 0, false, chunk);
  }
}

bool CorpusReader::NextLine(CorpusChunk* chunk) {
  size_t searched = 0;
  size_t feed;
  for (;;) {
    feed = Buffered().find('\n', searched);
    if (feed != std::string_view::npos || at_end_) break;
    searched = Buffered().size();
    if (searched > kLongestLine) {
      Throw(ErrorCode::kInvalid, "{}: line {} is longer than {} bytes", files_[file_].path,
            line_ + 1, kLongestLine);
    }
    Fill(2 * searched + kReadBytes);
  }
  const std::string_view line = Buffered().substr(0, feed);
  ++line_;
  const bool blank = Trim(line).empty();
  if (!blank) {
    chunk->text = line;
    chunk->document = document_++;
    chunk->ends_document = true;
    chunk->file = file_;
    chunk->json_line = line_;
  }
  begin_ = feed == std::string_view::npos ? buffer_.size() : begin_ + feed + 1;
  return !blank;
}

bool CorpusReader::Next(CorpusChunk* chunk) {
  for (;;) {
    if (!source_ || (at_end_ && begin_ == buffer_.size() && !inside_document_)) {
      if (!OpenNextFile()) return false;
    }
    Fill(1);
    if (files_[file_].is_jsonl ? NextLine(chunk) : NextText(chunk)) return true;
  }
}

CorpusReader::Batch CorpusReader::ReadBatch() {
  Batch batch;
  size_t bytes = 0;
  CorpusChunk chunk;
  while (bytes < options_.batch_bytes && Next(&chunk)) {
    bytes += chunk.text.size() + sizeof(CorpusChunk);  // many tiny documents take memory, too
    batch.chunks.push_back(std::move(chunk));
  }
  batch.consumed = finished_bytes_ + (source_ ? source_->consumed() : 0);
  return batch;
}

std::vector<CorpusChunk> CorpusReader::NextBatch() {
  Batch batch = next_.valid() ? next_.get() : ReadBatch();
  if (!batch.chunks.empty()) {
    next_ = std::async(std::launch::async, [this] { return ReadBatch(); });
  }
  consumed_bytes_ = batch.consumed;
  return std::move(batch.chunks);
}

void CorpusReader::ParseLine(CorpusChunk* chunk) const {
  if (chunk->json_line == 0) return;
  const std::string& path = files_[chunk->file].path;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(chunk->text);
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kInvalid, "{}:{}: not valid JSON: {}", path, chunk->json_line,
          JsonProblem(error.what()));
  }
  const auto found = json.is_object() ? json.find(options_.field) : json.end();
  if (found == json.end() || !found->is_string()) {
    Throw(ErrorCode::kInvalid, "{}:{}: no text in the field \"{}\" (choose another with --field)",
          path, chunk->json_line, options_.field);
  }
  chunk->text = std::move(found->get_ref<std::string&>());
}

}  // namespace denseformer

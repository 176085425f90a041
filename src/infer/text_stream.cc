#include "infer/text_stream.h"

#include <algorithm>

namespace denseformer {
namespace {

// How many bytes at the end of `text` are a proper begin of `stop`.
size_t PartialMatch(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

size_t IncompleteUtf8Tail(std::string_view text) {
  const size_t most = std::min<size_t>(text.size(), 3);
  for (size_t n = 1; n <= most; ++n) {
    const unsigned char byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xC0) == 0x80) continue;  // continuation: look further back
    const size_t length = byte >= 0xF0 && byte <= 0xF4 ? 4
                          : byte >= 0xE0               ? 3
                          : byte >= 0xC2               ? 2
                                                       : 1;
    return byte <= 0xF4 && length > n ? n : 0;
  }
  return 0;
}

std::string TextStream::Add(std::string_view bytes) {
  if (stopped_) return "";
  held_ += bytes;
  size_t found = std::string::npos;
  for (const std::string& stop : stop_) found = std::min(found, held_.find(stop));
  if (found != std::string::npos) {
    stopped_ = true;
    std::string piece = held_.substr(0, found);
    held_.clear();
    return piece;
  }
  size_t keep = IncompleteUtf8Tail(held_);
  for (const std::string& stop : stop_) keep = std::max(keep, PartialMatch(held_, stop));
  std::string piece = held_.substr(0, held_.size() - keep);
  held_.erase(0, piece.size());
  // A stop string may begin inside a character's bytes only if it is no UTF-8 itself; cut again.
  const size_t tail = IncompleteUtf8Tail(piece);
  held_.insert(0, piece.substr(piece.size() - tail));
  piece.resize(piece.size() - tail);
  return piece;
}

std::string TextStream::Finish() {
  std::string rest = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace denseformer

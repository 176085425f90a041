// Turns the bytes of tokens into pieces of text that can be shown at once.
//
// A piece ends at a character boundary, and holds nothing that may turn out to be the begin of a
// stop string.
#ifndef DENSEFORMER_INFER_TEXT_STREAM_H_
#define DENSEFORMER_INFER_TEXT_STREAM_H_

#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // Takes the bytes of the next token; returns the text that is now certain. Once a stop string was
  // found (stopped()), everything from its begin on is dropped.
  std::string Add(std::string_view bytes);

  // What was held back, at the end of the text. Bytes that are no UTF-8 come out as they are.
  std::string Finish();

  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

// How many bytes at the end of `text` begin a UTF-8 character that is not complete (0 to 3).
size_t IncompleteUtf8Tail(std::string_view text);

}  // namespace denseformer

#endif  // DENSEFORMER_INFER_TEXT_STREAM_H_

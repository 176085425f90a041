// A chat as one prompt, by a template that the user gives: a TOML file.
//
//   begin = "<|endoftext|>"              # before everything; default: nothing
//   system = "{content}\n"               # one line per role that may occur
//   user = "User: {content}\n"
//   assistant = "Assistant: {content}\n"
//   generation = "Assistant:"            # after the last message: what the model continues
//   stop = ["\nUser:"]                   # ends the answer, beside the stop strings of a request
//
// Names of special tokens are their ids in the template, and plain text in messages.
#ifndef DENSEFORMER_SERVE_CHAT_TEMPLATE_H_
#define DENSEFORMER_SERVE_CHAT_TEMPLATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "denseformer/tokenizer.h"

namespace denseformer {

struct ChatMessage {
  std::string role;
  std::string content;
};

class ChatTemplate {
 public:
  // Throws kInvalid that names the place and the key.
  static ChatTemplate Parse(std::string_view toml, const std::string& file_name);

  // Throws RequestError (400) for a role that the template does not have.
  std::vector<int32_t> Encode(const Tokenizer& tokenizer,
                              const std::vector<ChatMessage>& messages) const;
  const std::vector<std::string>& stop() const { return stop_; }

 private:
  std::string begin_, generation_;
  std::map<std::string, std::string> roles_;
  std::vector<std::string> stop_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_CHAT_TEMPLATE_H_

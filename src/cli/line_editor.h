// Lines from a person: with editing and history on a terminal, plainly from anything else.
#ifndef DENSEFORMER_CLI_LINE_EDITOR_H_
#define DENSEFORMER_CLI_LINE_EDITOR_H_

#include <memory>
#include <optional>
#include <string>

namespace denseformer {

class LineEditor {
 public:
  LineEditor(std::string program, std::string prompt);
  ~LineEditor();

  // The next line without its line feed; nothing at the end of the input.
  std::optional<std::string> Next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_LINE_EDITOR_H_

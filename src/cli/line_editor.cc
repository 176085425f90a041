#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace denseformer {
namespace {
constexpr int kHistoryLines = 1000;

// libedit reads characters as the locale has them, and drops those that it has not: with the locale
// "C" all but ASCII. Numbers and messages stay as they are.
void UseUtf8() {
  const char* set = std::setlocale(LC_CTYPE, "");
  if (set != nullptr && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::State {
  std::string program, prompt;
  EditLine* editor = nullptr;
  History* history = nullptr;
};

LineEditor::LineEditor(std::string program, std::string prompt)
    : state_(std::make_unique<State>()) {
  state_->program = std::move(program);
  state_->prompt = std::move(prompt);
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return;
  UseUtf8();
  // The prompt and the echo go to stderr: stdout carries results.
  state_->editor = el_init(state_->program.c_str(), stdin, stderr, stderr);
  if (state_->editor == nullptr) return;
  el_set(state_->editor, EL_CLIENTDATA, state_.get());
  el_set(
      state_->editor, EL_PROMPT, +[](EditLine* editor) -> char* {
        State* state = nullptr;
        el_get(editor, EL_CLIENTDATA, &state);
        return state->prompt.data();
      });
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_SIGNAL, 1);  // gives the terminal back as it was before Ctrl-C ends us
  state_->history = history_init();
  if (state_->history != nullptr) {
    HistEvent event;
    history(state_->history, &event, H_SETSIZE, kHistoryLines);
    el_set(state_->editor, EL_HIST, history, state_->history);
  }
}

LineEditor::~LineEditor() {
  if (state_->history != nullptr) history_end(state_->history);
  if (state_->editor != nullptr) el_end(state_->editor);
}

std::optional<std::string> LineEditor::Next() {
  std::string line;
  if (state_->editor == nullptr) {
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  int count = 0;
  const char* text = el_gets(state_->editor, &count);
  if (text == nullptr || count <= 0) return std::nullopt;
  line.assign(text, static_cast<size_t>(count));
  if (state_->history != nullptr && line.size() > 1) {
    HistEvent event;
    history(state_->history, &event, H_ENTER, line.c_str());
  }
  if (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

}  // namespace denseformer

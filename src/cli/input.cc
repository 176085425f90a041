#include "cli/input.h"

#include <cstdio>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr size_t kBlock = 1 << 16;

void CheckInput() {
  if (std::ferror(stdin) != 0) ThrowErrno(errno, "cannot read standard input");
}

}  // namespace

std::string ReadStdin() {
  std::string text;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kBlock);
    const size_t got = std::fread(text.data() + before, 1, kBlock, stdin);
    text.resize(before + got);
    if (got < kBlock) break;
  }
  CheckInput();
  return text;
}

bool ReadStdinLine(std::string* line) {
  line->clear();
  int c;
  while ((c = std::getc(stdin)) != EOF && c != '\n') line->push_back(static_cast<char>(c));
  CheckInput();
  return c != EOF || !line->empty();
}

}  // namespace denseformer

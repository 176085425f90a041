// A table as text, CSV, Markdown and HTML.
#ifndef DENSEFORMER_SWEEP_TEXT_TABLE_H_
#define DENSEFORMER_SWEEP_TEXT_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

struct TextTable {
  std::vector<std::string> headers;
  std::vector<std::vector<std::string>> rows;  // each as long as headers
};

// Columns aligned: the first to the left, the others to the right.
std::string TableToText(const TextTable& table);
// RFC 4180, quotes where needed.
std::string TableToCsv(const TextTable& table);
std::string TableToMarkdown(const TextTable& table);
// The texts of sweep files are Markdown: code in backquotes becomes <code>, links their words.
std::string MarkdownToHtml(std::string_view text);
std::string TableToHtml(const TextTable& table);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_TEXT_TABLE_H_

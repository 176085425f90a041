#include "sweep/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "base/text.h"
#include "chart/svg.h"

namespace denseformer {
namespace {

// Characters, not bytes: UTF-8 continuation bytes do not count.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string MarkdownCell(const std::string& text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

}  // namespace

std::string TableToText(const TextTable& table) {
  std::vector<size_t> widths;
  for (size_t c = 0; c < table.headers.size(); ++c) {
    size_t width = Width(table.headers[c]);
    for (const auto& row : table.rows) width = std::max(width, Width(row[c]));
    widths.push_back(width);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - Width(cells[c]), ' ');
      text += (c == 0 ? "" : "  ") + (c == 0 ? cells[c] + pad : pad + cells[c]);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line(table.headers);
  for (const auto& row : table.rows) text += line(row);
  return text;
}

std::string TableToCsv(const TextTable& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::vector<std::string> quoted;
    for (const std::string& cell : cells) quoted.push_back(CsvCell(cell));
    return Join(quoted, ",") + "\n";
  };
  std::string text = line(table.headers);
  for (const auto& row : table.rows) text += line(row);
  return text;
}

std::string TableToMarkdown(const TextTable& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells)
      text += " " + MarkdownCell(cell) + (cell.empty() ? "|" : " |");
    return text + "\n";
  };
  std::string text = line(table.headers) + "|";
  for (size_t c = 0; c < table.headers.size(); ++c) text += c == 0 ? " --- |" : " ---: |";
  text += "\n";
  for (const auto& row : table.rows) text += line(row);
  return text;
}

std::string MarkdownToHtml(std::string_view text) {
  static const std::regex code("`([^`]*)`"), link("\\[([^\\]]*)\\]\\([^)]*\\)");
  const std::string words = std::regex_replace(EscapeXml(text), link, "$1");
  return std::regex_replace(words, code, "<code>$1</code>");
}

std::string TableToHtml(const TextTable& table) {
  const auto line = [](const std::vector<std::string>& cells, const char* tag) {
    std::string text = "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      // Names stand on the left, numbers on the right.
      text += fmt::format("<{0}{1}>{2}</{0}>", tag, i == 0 ? " class=\"left\"" : "",
                          MarkdownToHtml(cells[i]));
    }
    return text + "</tr>\n";
  };
  std::string text = "<table>\n<thead>" + line(table.headers, "th") + "</thead>\n<tbody>\n";
  for (const auto& row : table.rows) text += line(row, "td");
  return text + "</tbody>\n</table>\n";
}

}  // namespace denseformer

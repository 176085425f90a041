// Helpers of the tests of drawings: searches in text, and a check of XML.
#ifndef DENSEFORMER_CHART_TESTING_H_
#define DENSEFORMER_CHART_TESTING_H_

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline int Occurrences(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

// What is wrong with a piece of XML: tags that do not match, attributes without quotes or given
// twice, bare < and &; "" where it is well-formed. Enough of a parser for what this library writes.
class XmlChecker {
 public:
  explicit XmlChecker(std::string_view text) : text_(text) {}

  std::string Problem() {
    while (at_ < text_.size() && problem_.empty()) {
      if (text_[at_] == '<') {
        Tag();
      } else {
        Character();
      }
    }
    if (problem_.empty() && !open_.empty()) problem_ = "no end of <" + open_.back() + ">";
    return problem_;
  }

 private:
  bool Fail(const std::string& what) {
    problem_ = what + " at: " + std::string(text_.substr(at_, 60));
    return false;
  }
  bool Eat(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string Name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '-' || text_[at_] == ':' || text_[at_] == '_')) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }
  void Space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Character() {
    if (static_cast<unsigned char>(text_[at_]) < 0x20 && text_[at_] != '\n' && text_[at_] != '\t')
      return Fail("control character");
    if (text_[at_] == '&') {
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
        if (Eat(entity)) return true;
      }
      return Fail("bare &");
    }
    ++at_;
    return true;
  }
  bool Tag() {
    if (Eat("<?xml")) {
      at_ = text_.find("?>", at_) + 2;
      return true;
    }
    if (Eat("</")) {
      const std::string name = Name();
      if (open_.empty() || open_.back() != name || !Eat(">")) return Fail("wrong </" + name);
      open_.pop_back();
      return true;
    }
    Eat("<");
    const std::string name = Name();
    if (name.empty()) return Fail("bare <");
    std::vector<std::string> seen;
    for (Space(); at_ < text_.size() && text_[at_] != '>' && text_[at_] != '/'; Space()) {
      const std::string attribute = Name();
      if (attribute.empty() || !Eat("=\"")) return Fail("wrong attribute of <" + name);
      if (std::find(seen.begin(), seen.end(), attribute) != seen.end())
        return Fail("attribute twice: " + attribute);
      seen.push_back(attribute);
      while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '<') return Fail("bare < in an attribute");
        if (!Character()) return false;
      }
      if (!Eat("\"")) return Fail("no end of an attribute");
    }
    if (Eat("/>")) return true;
    if (!Eat(">")) return Fail("no end of <" + name);
    if (name == "style" || name == "script") at_ = text_.find("</" + name, at_);
    open_.push_back(name);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<std::string> open_;
  std::string problem_;
};

inline std::string XmlProblem(std::string_view text) { return XmlChecker(text).Problem(); }

}  // namespace denseformer

#endif  // DENSEFORMER_CHART_TESTING_H_

#include "denseformer/tokenizer.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "data/bpe.h"
#include "data/split.h"
#include "data/tokenizer_files.h"

namespace denseformer {
namespace {

// Texts above this are cut into parts of this size for the threads.
constexpr size_t kPartBytes = 256 << 10;

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerData given) : data(std::move(given)), table(data) {
    is_special.resize(data.tokens.size());
    for (const auto& [name, id] : data.special) is_special[id] = true;
  }

  // Encoders not in use at the moment: their caches are worth keeping.
  std::unique_ptr<BpeEncoder> TakeEncoder() const {
    const std::lock_guard lock(mutex);
    if (encoders.empty()) return std::make_unique<BpeEncoder>(table);
    std::unique_ptr<BpeEncoder> encoder = std::move(encoders.back());
    encoders.pop_back();
    return encoder;
  }
  void GiveBack(std::unique_ptr<BpeEncoder> encoder) const {
    const std::lock_guard lock(mutex);
    encoders.push_back(std::move(encoder));
  }

  void EncodeOnOneThread(std::string_view text, std::vector<int32_t>* ids) const {
    std::unique_ptr<BpeEncoder> encoder = TakeEncoder();
    encoder->Encode(text, ids);
    GiveBack(std::move(encoder));
  }

  void EncodeText(std::string_view text, std::vector<int32_t>* ids) const;

  TokenizerData data;
  BpeTable table;
  std::vector<bool> is_special;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<BpeEncoder>> encoders;
};

void Tokenizer::Impl::EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
  if (text.size() <= kPartBytes || NumThreads() == 1) {
    EncodeOnOneThread(text, ids);
    return;
  }
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t cut = text.size() <= kPartBytes ? 0 : SafeCut(text, kPartBytes);
    size_t end = cut;
    if (cut == 0) {
      // No place to cut in this part: look further on, a part at a time.
      for (end = std::min(text.size(), 2 * kPartBytes); end < text.size(); end += kPartBytes) {
        const size_t from = end - kPartBytes;
        const size_t found = SafeCut(text.substr(from, kPartBytes + 1), kPartBytes);
        if (found == 0) continue;
        end = from + found;
        break;
      }
      end = std::min(end, text.size());
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  std::vector<std::vector<int32_t>> results(parts.size());
  ParallelFor(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) EncodeOnOneThread(parts[i], &results[i]);
  });
  for (const std::vector<int32_t>& result : results) {
    ids->insert(ids->end(), result.begin(), result.end());
  }
}

Tokenizer::Tokenizer(TokenizerData data) : impl_(std::make_shared<Impl>(std::move(data))) {}

Tokenizer Tokenizer::Load(const std::string& path) { return Tokenizer(ReadTokenizerFiles(path)); }

Tokenizer Tokenizer::FromJson(std::string_view json, const std::string& name) {
  return Tokenizer(ReadTokenizerJson(json, name));
}

Tokenizer Tokenizer::Bytes() {
  TokenizerData data = BareBytes();
  AppendEndOfText(&data);
  return Tokenizer(std::move(data));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, SpecialTokens special) const {
  std::vector<int32_t> ids;
  // Where each special token occurs next; looked for again only when the text has passed it.
  struct Occurrence {
    std::string_view name;
    int32_t id;
    size_t at;
  };
  std::vector<Occurrence> next;
  if (special == SpecialTokens::kRecognize) {
    for (const auto& [name, id] : impl_->data.special) next.push_back({name, id, text.find(name)});
  }
  size_t done = 0;
  for (;;) {
    // The leftmost one, the longest where several start there.
    const Occurrence* first = nullptr;
    for (Occurrence& candidate : next) {
      if (candidate.at < done) candidate.at = text.find(candidate.name, done);
      if (candidate.at == std::string_view::npos) continue;
      if (first == nullptr || candidate.at < first->at ||
          (candidate.at == first->at && candidate.name.size() > first->name.size())) {
        first = &candidate;
      }
    }
    const size_t stop = first == nullptr ? text.size() : first->at;
    impl_->EncodeText(text.substr(done, stop - done), &ids);
    if (first == nullptr) return ids;
    ids.push_back(first->id);
    done = stop + first->name.size();
  }
}

std::string Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string_view bytes = TokenBytes(ids[i]);
    if (bytes.empty()) {
      Throw(ErrorCode::kInvalid, "decode: token {} at position {} is not in the vocabulary of {}",
            ids[i], i, vocab_size());
    }
    text += bytes;
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->data.tokens[id];
}

int Tokenizer::TextLength(int32_t id) const {
  return IsSpecial(id) ? 0 : static_cast<int>(TokenBytes(id).size());
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->is_special[id];
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->data.tokens.size()); }
int32_t Tokenizer::end_of_text() const { return impl_->data.end_of_text; }
std::string Tokenizer::ToJson() const { return WriteTokenizerJson(impl_->data); }
void Tokenizer::Save(const std::string& path) const { WriteOutputFile(path, ToJson()); }

std::string Tokenizer::Hash() const {
  const std::string json = ToJson();
  return HashBytes(json.data(), json.size());
}

const TokenizerData& Tokenizer::data() const { return impl_->data; }

}  // namespace denseformer

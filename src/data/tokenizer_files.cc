#include "data/tokenizer_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/byte_alphabet.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;
using IdOfToken = std::unordered_map<std::string, int32_t>;
using WrittenMerge = std::pair<std::string, std::string>;

// Larger than any vocabulary there is; keeps a damaged id from asking for all memory.
constexpr int64_t kMostTokens = int64_t{1} << 22;
constexpr const char* kRemedy = "expected a byte-level BPE as in GPT-2";

Json ParseJson(std::string_view text, const std::string& name) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not valid JSON: {}", name, JsonProblem(error.what()));
  }
}

std::vector<WrittenMerge> ParseMergeLines(std::string_view text, const std::string& name) {
  std::vector<WrittenMerge> merges;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t feed = text.find('\n');
    std::string_view line = text.substr(0, feed);
    text.remove_prefix(feed == std::string_view::npos ? text.size() : feed + 1);
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      Throw(ErrorCode::kCorrupt, "{}: line {} is '{}', expected two tokens with a space between",
            name, number, line.substr(0, 40));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

std::string BytesOf(const std::string& written, const std::string& name) {
  std::optional<std::string> bytes = FromByteAlphabet(written);
  if (!bytes || bytes->empty()) {
    Throw(ErrorCode::kUnsupported, "{}: token '{}' is not in the byte alphabet, {}", name, written,
          kRemedy);
  }
  return *bytes;
}

int64_t CheckedId(const Json& id, const std::string& token, const std::string& name) {
  if (!id.is_number_integer() || id < 0 || id >= kMostTokens) {
    Throw(ErrorCode::kCorrupt, "{}: the id of token '{}' is {}, expected 0 to {}", name, token,
          id.dump(), kMostTokens - 1);
  }
  return id.get<int64_t>();
}

void SetToken(TokenizerData* data, int64_t id, std::string bytes, const std::string& name) {
  if (id >= static_cast<int64_t>(data->tokens.size())) data->tokens.resize(id + 1);
  if (!data->tokens[id].empty()) {
    Throw(ErrorCode::kCorrupt, "{}: two tokens with the id {}", name, id);
  }
  data->tokens[id] = std::move(bytes);
}

void AddSpecial(TokenizerData* data, const std::string& content, int32_t id) {
  data->special[content] = id;
  if (content == kEndOfTextName) data->end_of_text = id;
}

// Fills byte_ids from the ids of the tokens.
void FindBytes(TokenizerData* data, const IdOfToken& ids, const std::string& name) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end()) {
      Throw(ErrorCode::kUnsupported, "{}: no token for the single byte 0x{:02x}, {}", name, byte,
            kRemedy);
    }
    data->byte_ids[byte] = found->second;
  }
}

// Fills merges; each side and the result must be tokens.
void AddMerges(TokenizerData* data, const std::vector<WrittenMerge>& merges, const IdOfToken& ids,
               const std::string& name) {
  data->merges.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    const std::string left_bytes = BytesOf(left, name), right_bytes = BytesOf(right, name);
    const auto l = ids.find(left_bytes), r = ids.find(right_bytes);
    const auto result = ids.find(left_bytes + right_bytes);
    if (l == ids.end() || r == ids.end() || result == ids.end()) {
      Throw(ErrorCode::kCorrupt, "{}: merge {} ('{} {}') needs a token that the vocabulary lacks",
            name, data->merges.size(), left, right);
    }
    data->merges.push_back({l->second, r->second, result->second});
  }
}

// The vocabulary of a JSON object {"TOKEN": ID}; names of special tokens are not in the alphabet.
void AddVocabulary(TokenizerData* data, const Json& vocab, IdOfToken* ids,
                   const std::string& name) {
  if (!vocab.is_object()) {
    Throw(ErrorCode::kCorrupt, "{}: no vocabulary object, {}", name, kRemedy);
  }
  for (const auto& [written, value] : vocab.items()) {
    const int64_t id = CheckedId(value, written, name);
    if (data->special.count(written) != 0) {
      if (data->special[written] != id) {
        Throw(ErrorCode::kCorrupt, "{}: special token '{}' has the ids {} and {}", name, written,
              data->special[written], id);
      }
      continue;
    }
    std::string bytes = BytesOf(written, name);
    (*ids)[bytes] = static_cast<int32_t>(id);
    SetToken(data, id, std::move(bytes), name);
  }
}

// A component of tokenizer.json must be absent or of the type given.
void RequireType(const Json& json, const char* key, const char* type, const std::string& name) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return;
  const Json type_found = found->value("type", Json());
  if (type_found != type) {
    Throw(ErrorCode::kUnsupported, "{}: {} is of type {}, {} ({})", name, key, type_found.dump(),
          kRemedy, type);
  }
}

// Options of the model and of the splitting that would change the ids.
void RequireGpt2Options(const Json& json, const std::string& name) {
  const auto normalizer = json.find("normalizer");
  if (normalizer != json.end() && !normalizer->is_null()) {
    Throw(ErrorCode::kUnsupported, "{}: it has a normalizer, {} without one", name, kRemedy);
  }
  for (const char* key : {"pre_tokenizer", "post_processor", "decoder"}) {
    RequireType(json, key, "ByteLevel", name);
  }
  const auto splitting = json.find("pre_tokenizer");
  if (splitting == json.end() || splitting->is_null() ||
      splitting->value("add_prefix_space", true) || !splitting->value("use_regex", true)) {
    Throw(ErrorCode::kUnsupported,
          "{}: pre_tokenizer must be ByteLevel with add_prefix_space false and use_regex true",
          name);
  }
  const Json& model = json.at("model");
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"}) {
    const auto found = model.find(key);
    if (found == model.end() || found->is_null() || *found == false || *found == "" ||
        (found->is_number() && *found == 0)) {
      continue;
    }
    // GPT-2's own file names an unknown token, which never occurs where every byte is a token.
    if (std::string_view(key) == "unk_token") continue;
    Throw(ErrorCode::kUnsupported, "{}: model.{} is {}, {} without it", name, key, found->dump(),
          kRemedy);
  }
}

void AddAddedTokens(TokenizerData* data, const Json& json, const std::string& name) {
  const auto added = json.find("added_tokens");
  if (added == json.end() || added->is_null()) return;
  for (const Json& token : *added) {
    const std::string content = token.at("content").get<std::string>();
    if (content.empty()) Throw(ErrorCode::kCorrupt, "{}: an added token without text", name);
    const int64_t id = CheckedId(token.at("id"), content, name);
    SetToken(data, id, content, name);
    AddSpecial(data, content, static_cast<int32_t>(id));
  }
}

std::vector<WrittenMerge> MergesOf(const Json& model, const std::string& name) {
  std::vector<WrittenMerge> merges;
  for (const Json& merge : model.at("merges")) {
    if (merge.is_array() && merge.size() == 2) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      const std::vector<std::string> sides = Split(merge.get<std::string>(), ' ');
      if (sides.size() != 2) {
        Throw(ErrorCode::kCorrupt, "{}: merge {} is {}, expected two tokens", name, merges.size(),
              merge.dump());
      }
      merges.emplace_back(sides[0], sides[1]);
    }
  }
  return merges;
}

std::string FirstPresent(const std::string& directory, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string path = directory + "/" + name;
    if (FileExists(path)) return path;
  }
  return "";
}

constexpr size_t kMostBytes = size_t{256} << 20;

TokenizerData ReadDirectory(const std::string& directory) {
  const std::string whole = FirstPresent(directory, {"tokenizer.json"});
  if (!whole.empty()) return ReadTokenizerJson(ReadFile(whole, kMostBytes), whole);
  const std::string vocab = FirstPresent(directory, {"vocab.json", "encoder.json"});
  const std::string merges = FirstPresent(directory, {"merges.txt", "vocab.bpe"});
  if (merges.empty()) {
    Throw(ErrorCode::kNotFound,
          "{}: no tokenizer found, expected tokenizer.json, or vocab.bpe, or vocab.json and "
          "merges.txt",
          directory);
  }
  if (vocab.empty()) return ReadMerges(ReadFile(merges, kMostBytes), merges);
  return ReadVocabAndMerges(ReadFile(vocab, kMostBytes), ReadFile(merges, kMostBytes), vocab);
}

}  // namespace

TokenizerData BareBytes() {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.emplace_back(1, static_cast<char>(byte));
    data.byte_ids[byte] = byte;
  }
  return data;
}

void AppendEndOfText(TokenizerData* data) {
  AddSpecial(data, kEndOfTextName, static_cast<int32_t>(data->tokens.size()));
  data->tokens.push_back(kEndOfTextName);
}

TokenizerData ReadMerges(std::string_view text, const std::string& name) {
  const std::vector<WrittenMerge> merges = ParseMergeLines(text, name);
  if (merges.empty()) Throw(ErrorCode::kCorrupt, "{}: no merges in it", name);
  TokenizerData data;
  IdOfToken ids;
  const auto add = [&](std::string bytes) {
    const auto id = static_cast<int32_t>(data.tokens.size());
    if (!ids.emplace(bytes, id).second) {
      Throw(ErrorCode::kCorrupt, "{}: two merges make the token '{}'", name, ToByteAlphabet(bytes));
    }
    data.tokens.push_back(std::move(bytes));
  };
  for (const unsigned char byte : Gpt2ByteOrder()) add(std::string(1, static_cast<char>(byte)));
  for (const auto& [left, right] : merges) add(BytesOf(left, name) + BytesOf(right, name));
  FindBytes(&data, ids, name);
  AddMerges(&data, merges, ids, name);
  AppendEndOfText(&data);
  return data;
}

TokenizerData ReadVocabAndMerges(std::string_view vocab_json, std::string_view merges,
                                 const std::string& name) {
  const Json vocab = ParseJson(vocab_json, name);
  TokenizerData data;
  IdOfToken ids;
  if (const auto end = vocab.find(kEndOfTextName); end != vocab.end()) {
    const int64_t id = CheckedId(*end, kEndOfTextName, name);
    SetToken(&data, id, kEndOfTextName, name);
    AddSpecial(&data, kEndOfTextName, static_cast<int32_t>(id));
  }
  AddVocabulary(&data, vocab, &ids, name);
  FindBytes(&data, ids, name);
  AddMerges(&data, ParseMergeLines(merges, name), ids, name);
  return data;
}

TokenizerData ReadTokenizerJson(std::string_view text, const std::string& name) {
  const Json json = ParseJson(text, name);
  try {
    if (!json.is_object() || json.find("model") == json.end() ||
        json.at("model").value("type", "BPE") != "BPE") {
      Throw(ErrorCode::kUnsupported, "{}: no BPE model in it, {}", name, kRemedy);
    }
    RequireGpt2Options(json, name);
    TokenizerData data;
    IdOfToken ids;
    AddAddedTokens(&data, json, name);
    AddVocabulary(&data, json.at("model").at("vocab"), &ids, name);
    FindBytes(&data, ids, name);
    AddMerges(&data, MergesOf(json.at("model"), name), ids, name);
    return data;
  } catch (const Json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not a tokenizer.json: {}", name, JsonProblem(error.what()));
  }
}

TokenizerData ReadTokenizerFiles(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) return ReadDirectory(path);
  if (path == "bytes" && !FileExists(path)) {
    TokenizerData data = BareBytes();
    AppendEndOfText(&data);
    return data;
  }
  const std::string content = ReadFile(path, kMostBytes);
  const std::string parent = fs::path(path).parent_path().string();
  const std::string directory = parent.empty() ? "." : parent;
  const std::string_view start = Trim(std::string_view(content).substr(0, 4096));
  if (!start.empty() && start[0] == '{') {
    if (const Json json = ParseJson(content, path);
        json.contains("model") && json["model"].is_object()) {
      return ReadTokenizerJson(content, path);
    }
    const std::string merges = FirstPresent(directory, {"merges.txt", "vocab.bpe"});
    if (merges.empty()) {
      Throw(ErrorCode::kNotFound, "{}: neither a tokenizer.json nor with a merges.txt beside it",
            path);
    }
    return ReadVocabAndMerges(content, ReadFile(merges, kMostBytes), path);
  }
  const std::string_view first = start.substr(0, start.find_first_of(" \n"));
  if (first != "#version:" && FromByteAlphabet(first).value_or("").empty()) {
    Throw(ErrorCode::kUnsupported,
          "{}: not a tokenizer file, expected tokenizer.json, vocab.bpe, or vocab.json and "
          "merges.txt",
          path);
  }
  const std::string vocab = FirstPresent(directory, {"vocab.json", "encoder.json"});
  if (vocab.empty()) return ReadMerges(content, path);
  return ReadVocabAndMerges(ReadFile(vocab, kMostBytes), content, vocab);
}

std::string WriteTokenizerJson(const TokenizerData& data) {
  using Ordered = nlohmann::ordered_json;
  Ordered json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  std::map<int32_t, std::string> special_by_id;
  for (const auto& [content, id] : data.special) special_by_id[id] = content;
  json["added_tokens"] = Ordered::array();
  for (const auto& [id, content] : special_by_id) {
    json["added_tokens"].push_back({{"id", id},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  json["normalizer"] = nullptr;
  const Ordered byte_level = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", true}};
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  Ordered& model = json["model"];
  model = {{"type", "BPE"},
           {"dropout", nullptr},
           {"unk_token", nullptr},
           {"continuing_subword_prefix", nullptr},
           {"end_of_word_suffix", nullptr},
           {"fuse_unk", false},
           {"byte_fallback", false}};
  // Built as text: filling an ordered object of 50,000 keys takes quadratic time.
  std::string vocab, merges;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].empty()) continue;
    const bool special = special_by_id.count(static_cast<int32_t>(id)) != 0;
    const Json token = special ? data.tokens[id] : ToByteAlphabet(data.tokens[id]);
    vocab += fmt::format("{}\n{}: {}", vocab.empty() ? "" : ",", token.dump(), id);
  }
  for (const BpeMerge& merge : data.merges) {
    const Json pair =
        ToByteAlphabet(data.tokens[merge.left]) + " " + ToByteAlphabet(data.tokens[merge.right]);
    merges += fmt::format("{}\n{}", merges.empty() ? "" : ",", pair.dump());
  }
  std::string text = json.dump(1);
  const size_t model_end = text.rfind("\n }");
  text.insert(model_end,
              fmt::format(",\n  \"vocab\": {{{}\n  }},\n  \"merges\": [{}\n  ]", vocab, merges));
  return text + "\n";
}

}  // namespace denseformer

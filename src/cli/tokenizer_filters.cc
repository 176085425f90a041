#include "cli/tokenizer_filters.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/input.h"
#include "cli/output.h"
#include "denseformer/tokenizer.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

struct FilterOptions {
  std::string path;
  bool jsonl = false;
  bool special = false;
};

const Json* Field(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) ? &object[name] : nullptr;
}

// Calls `convert` with the object of each line of standard input, and prints it as one line.
template <class F>
void ForEachObject(F&& convert) {
  std::string line;
  for (int64_t number = 1; ReadStdinLine(&line); ++number) {
    if (Trim(line).empty()) continue;
    try {
      Json object = Json::parse(line);
      convert(object);
      WriteStdout(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    } catch (const Json::parse_error& error) {
      Throw(ErrorCode::kInvalid, "standard input, line {}: not JSON: error at byte {}", number,
            error.byte);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIo) throw;
      Throw(error.code(), "standard input, line {}: {}", number, error.what());
    }
  }
}

void Encode(const FilterOptions& options, const CommonOptions& common) {
  const Tokenizer tokenizer = Tokenizer::Load(options.path);
  const SpecialTokens special =
      options.special ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
  if (options.jsonl) {
    ForEachObject([&](Json& object) {
      const Json* text = Field(object, "text");
      if (text == nullptr || !text->is_string()) {
        Throw(ErrorCode::kInvalid, "expected an object with a string \"text\"");
      }
      object["ids"] = tokenizer.Encode(text->get_ref<const std::string&>(), special);
    });
    return;
  }
  const std::vector<int32_t> ids = tokenizer.Encode(ReadStdin(), special);
  if (common.json) {
    PrintJson({{"ids", ids}});
    return;
  }
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    text += fmt::format_int(ids[i]).str();
    text += i + 1 < ids.size() ? ' ' : '\n';
    if (text.size() > 1 << 16) {
      WriteStdout(text);
      text.clear();
    }
  }
  WriteStdout(text);
}

// Whole numbers with white space between them.
std::vector<int32_t> ParseIds(std::string_view text) {
  std::vector<int32_t> ids;
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  for (;;) {
    while (p < end && is_space(*p)) ++p;
    if (p == end) return ids;
    const char* stop = std::find_if(p, end, is_space);
    int32_t id = 0;
    const auto [used, status] = std::from_chars(p, stop, id);
    if (status != std::errc() || used != stop) {
      Throw(ErrorCode::kInvalid, "standard input: '{}' at offset {}, expected a token id",
            std::string_view(p, std::min<size_t>(static_cast<size_t>(stop - p), 40)),
            p - text.data());
    }
    ids.push_back(id);
    p = stop;
  }
}

void Decode(const FilterOptions& options, const CommonOptions& common) {
  const Tokenizer tokenizer = Tokenizer::Load(options.path);
  if (options.jsonl) {
    ForEachObject([&](Json& object) {
      const Json* ids = Field(object, "ids");
      const auto is_id = [](const Json& id) { return id.is_number_integer(); };
      if (ids == nullptr || !ids->is_array() || !std::all_of(ids->begin(), ids->end(), is_id)) {
        Throw(ErrorCode::kInvalid, "expected an object with an array of whole numbers \"ids\"");
      }
      object["text"] = tokenizer.Decode(ids->get<std::vector<int32_t>>());
    });
    return;
  }
  const std::string text = tokenizer.Decode(ParseIds(ReadStdin()));
  if (common.json) {
    PrintJson({{"text", text}});
  } else {
    WriteStdout(text);
  }
}

CLI::App& AddFilter(CLI::App& parent, const char* name, const char* summary,
                    FilterOptions* options) {
  CLI::App& app = *parent.add_subcommand(name, summary);
  app.add_option("PATH", options->path,
                 "Tokenizer: tokenizer.json, vocab.bpe, a directory with one, or 'bytes'")
      ->required();
  return app;
}

}  // namespace

void AddTokenizerFilters(CLI::App& parent, CommonOptions& common) {
  auto encode = std::make_shared<FilterOptions>();
  CLI::App& encoder =
      AddFilter(parent, "encode", "Text on stdin to token ids on stdout", encode.get());
  encoder.add_flag("--jsonl", encode->jsonl, "Lines {\"text\"} to lines {\"text\", \"ids\"}");
  encoder.add_flag("--special", encode->special,
                   "Names of special tokens in the text (<|endoftext|>) become these tokens");
  encoder.footer(
      "Examples:\n"
      "  echo 'In the beginning' | denseformer tokenizer encode tokenizer.json\n"
      "  denseformer tokenizer encode gpt2/vocab.bpe --jsonl <texts.jsonl >ids.jsonl");
  SetWork(encoder, common, encode, [&common](const FilterOptions& o) { Encode(o, common); });

  auto decode = std::make_shared<FilterOptions>();
  CLI::App& decoder =
      AddFilter(parent, "decode", "Token ids on stdin to text on stdout", decode.get());
  decoder.add_flag("--jsonl", decode->jsonl, "Lines {\"ids\"} to lines {\"ids\", \"text\"}");
  decoder.footer(
      "Example:\n"
      "  echo 15496 11 995 0 | denseformer tokenizer decode gpt2/vocab.bpe");
  SetWork(decoder, common, decode, [&common](const FilterOptions& o) { Decode(o, common); });
}

}  // namespace denseformer

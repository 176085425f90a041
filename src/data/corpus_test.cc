#include "data/corpus.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>

#include "base/file.h"
#include "base/random.h"
#include "base/testing.h"

namespace denseformer {
namespace {

using Documents = std::vector<std::string>;

std::string Zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string Gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class CorpusTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / name).parent_path());
    WriteFileAtomic(dir_ / name, content);
    return dir_ / name;
  }

  // All documents, put together from their chunks.
  static Documents Read(const std::vector<std::string>& paths, size_t chunk_bytes = 100) {
    CorpusReader reader(FindCorpusFiles(paths), {"text", chunk_bytes, 300});
    Documents documents;
    bool inside = false;
    for (;;) {
      std::vector<CorpusChunk> batch = reader.NextBatch();
      if (batch.empty()) break;
      for (CorpusChunk& chunk : batch) {
        reader.ParseLine(&chunk);
        if (!inside) documents.emplace_back();
        documents.back() += chunk.text;
        inside = !chunk.ends_document;
        EXPECT_EQ(chunk.document, static_cast<int64_t>(documents.size()) - 1);
      }
    }
    EXPECT_FALSE(inside);
    EXPECT_EQ(reader.consumed_bytes(), reader.total_bytes());
    return documents;
  }

  TemporaryDirectory dir_;
};

TEST_F(CorpusTest, SeparatorsOnLinesOfTheirOwn) {
  EXPECT_EQ(Read({Write("a.txt", "one\n<|endoftext|>\ntwo <|endoftext|>\n<|endoftext|> x\n")}),
            (Documents{"one\n", "two <|endoftext|>\n<|endoftext|> x\n"}));
  EXPECT_EQ(
      Read({Write("a.txt", "<|endoftext|>\n\n<|endoftext|>\r\n<|endoftext|>\nb\n<|endoftext|>")}),
      (Documents{"\n", "b\n"}));
  EXPECT_EQ(Read({Write("a.txt", "")}), Documents{});
  EXPECT_EQ(Read({Write("a.txt", "x")}), Documents{"x"});
}

TEST_F(CorpusTest, ChunksOfAnySizeGiveTheSameDocuments) {
  const char* const parts[] = {"word ",
                               "\n",
                               "<|endoftext|>\n",
                               "\n<|endoftext|>\n",
                               "\xe4\xb8\xad",
                               "  ",
                               "a.b\n",
                               "<|endoftext|>",
                               "long-long-long-word-without-end"};
  Random random(4);
  for (int round = 0; round < 100; ++round) {
    std::string text;
    for (uint64_t n = random.Below(200); n > 0; --n) text += parts[random.Below(std::size(parts))];
    const std::string path = Write("a.txt", text);
    const Documents whole = Read({path}, 1 << 20);
    for (const size_t chunk : {1, 2, 7, 40, 333}) ASSERT_EQ(Read({path}, chunk), whole) << chunk;
  }
}

TEST_F(CorpusTest, AStretchWithoutAnyPlaceToCut) {
  const std::string text = std::string(100, 'y') + " " + std::string(40 << 20, 'x') + "\nz\n";
  EXPECT_TRUE(Read({Write("a.txt", text)}) == Documents{text});
}

TEST_F(CorpusTest, CompressedFilesAndJsonl) {
  const std::string lines = "{\"text\": \"a\\n<|endoftext|>\\n\"}\n\n{\"id\": 1, \"text\": \"b\"}";
  const Documents expected = {"a\n<|endoftext|>\n", "b"};
  EXPECT_EQ(Read({Write("a.jsonl", lines)}), expected);
  EXPECT_EQ(Read({Write("a.jsonl.zst", Zstd(lines))}), expected);
  EXPECT_EQ(Read({Write("a.jsonl.gz", Gzip(lines))}), expected);
  // Files put one behind the other are one file.
  EXPECT_EQ(Read({Write("a.txt.zst", Zstd("x") + Zstd("y"))}), Documents{"xy"});
  EXPECT_EQ(Read({Write("a.txt.gz", Gzip("x") + Gzip("y"))}), Documents{"xy"});
  EXPECT_EQ(Read({Write("e.txt.zst", Zstd("")), Write("e.txt.gz", Gzip(""))}), Documents{});
}

TEST_F(CorpusTest, DirectoriesInOrder) {
  Write("d/b.txt", "b");
  Write("d/a/z.jsonl.gz", Gzip("{\"text\": \"z\"}\n"));
  Write("d/c.txt.zst", Zstd("c"));
  Write("d/picture.png", "no text");
  EXPECT_EQ(Read({dir_ / "d"}), (Documents{"z", "b", "c"}));
  EXPECT_EQ(Read({dir_ / "d/c.txt.zst", dir_ / "d/picture.png"}), (Documents{"c", "no text"}));
}

TEST_F(CorpusTest, BadInput) {
  const std::string text(100000, 'q');
  const std::string zst = Zstd(text + "w"), gz = Gzip(text);
  const auto error = [this](const std::string& name, const std::string& content) {
    const std::string path = Write(name, content);
    std::string message = ErrorOf([&] { Read({path}); });
    const size_t at = message.find(path);
    if (at != std::string::npos) message.replace(at, path.size(), "PATH");
    return message;
  };
  const std::string truncated = "PATH: compressed data ends too early, the file is truncated";
  EXPECT_EQ(error("a.txt.zst", zst.substr(0, zst.size() - 3)), truncated);
  EXPECT_EQ(error("a.txt.gz", gz.substr(0, gz.size() - 3)), truncated);
  EXPECT_EQ(error("a.txt.zst", ""), truncated);
  EXPECT_EQ(error("a.txt.zst", text), "PATH: cannot decompress: Unknown frame descriptor");
  EXPECT_EQ(error("a.txt.gz", text), "PATH: cannot decompress: incorrect header check");
  EXPECT_EQ(error("a.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"a\"}\n"),
            "PATH:2: no text in the field \"text\" (choose another with --field)");
  EXPECT_EQ(error("a.jsonl", "{\"text\": 5}\n"),
            "PATH:1: no text in the field \"text\" (choose another with --field)");
  EXPECT_EQ(error("a.jsonl", "[1]\n"),
            "PATH:1: no text in the field \"text\" (choose another with --field)");
  EXPECT_EQ(error("a.jsonl", "\n{\"text\": \"a\n").substr(0, 23), "PATH:2: not valid JSON:");
  EXPECT_EQ(ErrorOf([&] { Read({dir_ / "none"}); }),
            "corpus: " + (dir_ / "none") + " does not exist, expected a file or a directory");
  std::filesystem::create_directory(dir_ / "empty");
  EXPECT_EQ(ErrorOf([&] { Read({dir_ / "empty"}); }),
            "corpus: " + (dir_ / "empty") +
                " holds no text, expected .txt or .jsonl files (also .zst or .gz)");
}

}  // namespace
}  // namespace denseformer

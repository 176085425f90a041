#include "data/prepare.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/testing.h"
#include "data/bpe.h"
#include "data/token_file.h"
#include "data/tokenizer_files.h"

namespace denseformer {
namespace {

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      documents_.push_back("Document " + std::to_string(i) + ", caf\u00e9.\nThe end\n");
      text += documents_.back() + "<|endoftext|>\n";
    }
    WriteFileAtomic(dir_ / "a.txt", text);
    options_.inputs = {dir_ / "a.txt"};
    options_.out = dir_ / "out";
  }

  static std::vector<int32_t> Tokens(const std::string& path) {
    const TokenFile file(path);
    std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
    file.Read(0, file.size(), tokens.data());
    return tokens;
  }
  std::string OutFiles() const {
    std::string names;
    for (const std::string& name : dir_.List()) names += name + " ";
    if (FileExists(options_.out)) {
      for (const char* name :
           {".prepare.lock", "meta.json", "tokenizer.json", "train.bin", "val.bin"}) {
        if (FileExists(options_.out + "/" + name)) names += name + std::string(" ");
      }
    }
    return names;
  }

  TemporaryDirectory dir_;
  std::vector<std::string> documents_;
  const Tokenizer bytes_ = Tokenizer::Bytes();
  PrepareOptions options_;
};

TEST_F(PrepareTest, EveryDocumentIsInOnePartWithItsEnd) {
  const DataMeta meta = PrepareData(bytes_, options_);
  const std::string train = bytes_.Decode(Tokens(dir_ / "out/train.bin"));
  const std::string val = bytes_.Decode(Tokens(dir_ / "out/val.bin"));
  int64_t val_documents = 0, bytes = 0;
  for (const std::string& document : documents_) {
    const bool in_train = train.find(document + kEndOfTextName) != std::string::npos;
    const bool in_val = val.find(document + kEndOfTextName) != std::string::npos;
    EXPECT_NE(in_train, in_val) << document;
    val_documents += in_val;
    bytes += static_cast<int64_t>(document.size());
  }
  EXPECT_EQ(meta.files.at("val.bin").documents, val_documents);
  EXPECT_EQ(meta.files.at("train.bin").documents, 200 - val_documents);
  EXPECT_NEAR(val_documents, 10, 9);
  EXPECT_EQ(meta.files.at("train.bin").bytes + meta.files.at("val.bin").bytes, bytes);
  EXPECT_EQ(meta.files.at("train.bin").tokens + meta.files.at("val.bin").tokens, bytes + 200);
  EXPECT_EQ(Tokenizer::Load(dir_ / "out").Hash(), meta.tokenizer_hash);
  EXPECT_EQ(OutFiles(), "a.txt out meta.json tokenizer.json train.bin val.bin ");
}

TEST_F(PrepareTest, SeedChoosesAndThreadsDoNot) {
  const DataMeta first = PrepareData(bytes_, options_);
  const int threads = NumThreads();
  SetNumThreads(3);
  options_.corpus = {"text", 50, 300};
  const DataMeta again = PrepareData(bytes_, options_);
  SetNumThreads(threads);
  options_.seed = 2;
  const DataMeta other = PrepareData(bytes_, options_);
  EXPECT_EQ(first.files.at("train.bin").hash, again.files.at("train.bin").hash);
  EXPECT_EQ(first.files.at("val.bin").hash, again.files.at("val.bin").hash);
  EXPECT_NE(first.files.at("val.bin").hash, other.files.at("val.bin").hash);
}

TEST_F(PrepareTest, OneDocumentGivesItsTail) {
  WriteFileAtomic(dir_ / "a.txt", std::string(900, 'a') + std::string(100, 'b'));
  options_.val_share = 0.1;
  const DataMeta meta = PrepareData(bytes_, options_);
  EXPECT_EQ(bytes_.Decode(Tokens(dir_ / "out/train.bin")), std::string(900, 'a'));
  EXPECT_EQ(bytes_.Decode(Tokens(dir_ / "out/val.bin")), std::string(100, 'b') + kEndOfTextName);
  EXPECT_EQ(meta.files.at("train.bin").bytes, 900);
  EXPECT_EQ(meta.files.at("val.bin").bytes, 100);
  EXPECT_EQ(meta.files.at("train.bin").hash, HashFile(dir_ / "out/train.bin"));
}

TEST_F(PrepareTest, FewDocumentsGiveTheTailOfTheCorpus) {
  WriteFileAtomic(dir_ / "a.txt", "aaaa\n<|endoftext|>\nbbbb\n<|endoftext|>\nc");
  struct Case {
    double share;  // of 14 tokens, small enough that no document falls to val by itself
    int64_t val_tokens, train_documents, val_documents;
  };
  for (const Case& c : {Case{1e-9, 1, 3, 1}, Case{1.9 / 14, 2, 2, 1}, Case{2.9 / 14, 3, 2, 2}}) {
    options_.val_share = c.share;
    const DataMeta meta = PrepareData(bytes_, options_);
    EXPECT_EQ(meta.files.at("val.bin").tokens, c.val_tokens) << c.share;
    EXPECT_EQ(meta.files.at("train.bin").documents, c.train_documents) << c.share;
    EXPECT_EQ(meta.files.at("val.bin").documents, c.val_documents) << c.share;
  }
}

TEST_F(PrepareTest, ValidationFilesOfTheirOwnAndNone) {
  WriteFileAtomic(dir_ / "v.jsonl", "{\"text\": \"v\"}\n{\"text\": \"\"}\n");
  options_.val_inputs = {dir_ / "v.jsonl"};
  DataMeta meta = PrepareData(bytes_, options_);
  EXPECT_EQ(meta.files.at("train.bin").documents, 200);
  EXPECT_EQ(Tokens(dir_ / "out/val.bin"), (std::vector<int32_t>{'v', 256}));
  EXPECT_EQ(meta.files.at("val.bin").documents, 1);
  // Without a validation part that of an earlier run goes.
  options_.val_inputs.clear();
  options_.val_share = 0;
  meta = PrepareData(bytes_, options_);
  EXPECT_EQ(meta.files.count("val.bin"), 0u);
  EXPECT_EQ(OutFiles(), "a.txt out v.jsonl meta.json tokenizer.json train.bin ");
}

TEST_F(PrepareTest, LargeVocabularyGivesUint32) {
  TokenizerData data = BareBytes();
  data.tokens.resize(70000);
  AppendEndOfText(&data);
  const DataMeta meta = PrepareData(Tokenizer(data), options_);
  EXPECT_EQ(meta.token_type, TokenType::kUint32);
  EXPECT_EQ(Tokens(dir_ / "out/train.bin").back(), 70000);
}

TEST_F(PrepareTest, BadInputLeavesNothing) {
  struct Case {
    std::string content;
    double share;
    std::string message;
  };
  for (const Case& c : {
           Case{"", 0.05, "data prepare: the corpus is empty, expected some text"},
           Case{"<|endoftext|>\n", 0.05, "data prepare: the corpus is empty, expected some text"},
           Case{"a", 0.9,
                "data prepare: too little text for a training and a validation part; change "
                "--val-share, or name files with --val"},
           Case{"a", 1.0, "data prepare: a validation share of 1, expected 0 up to but not 1"},
       }) {
    WriteFileAtomic(dir_ / "a.txt", c.content);
    options_.val_share = c.share;
    EXPECT_EQ(ErrorOf([&] { PrepareData(bytes_, options_); }), c.message);
    EXPECT_EQ(OutFiles(), "a.txt ");
  }
  options_.val_share = 0.05;
  const TokenizerData no_end = BareBytes();
  EXPECT_EQ(ErrorOf([&] { PrepareData(Tokenizer(no_end), options_); }),
            "data prepare: the tokenizer has no <|endoftext|> token to end documents with");
}

TEST_F(PrepareTest, FailureKeepsWhatWasThere) {
  PrepareData(bytes_, options_);
  const std::string before = ReadFile(dir_ / "out/train.bin");
  WriteFileAtomic(dir_ / "a.txt", "{");
  WriteFileAtomic(dir_ / "b.jsonl", "{\n");
  options_.inputs = {dir_ / "a.txt", dir_ / "b.jsonl"};
  EXPECT_NE(ErrorOf([&] { PrepareData(bytes_, options_); }), "no error");
  EXPECT_EQ(ReadFile(dir_ / "out/train.bin"), before);
  EXPECT_EQ(OutFiles(), "a.txt b.jsonl out meta.json tokenizer.json train.bin val.bin ");
}

TEST_F(PrepareTest, FullDiskAtAnyWriteLeavesNothing) {
  int writes = 0;
  const auto count = [&writes](IoOperation operation, const std::string&) {
    writes += operation == IoOperation::kWrite;
    return 0;
  };
  SetIoFaultForTesting(count);
  PrepareData(bytes_, options_);
  SetIoFaultForTesting(nullptr);
  ASSERT_GT(writes, 3);
  options_.out = dir_ / "out2";
  for (int fail = 1; fail <= writes; ++fail) {
    int number = 0;
    SetIoFaultForTesting([&](IoOperation operation, const std::string&) {
      return operation == IoOperation::kWrite && ++number == fail ? ENOSPC : 0;
    });
    const std::string error = ErrorOf([&] { PrepareData(bytes_, options_); });
    SetIoFaultForTesting(nullptr);
    EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
    EXPECT_FALSE(FileExists(options_.out)) << fail;
  }
}

TEST_F(PrepareTest, OneAtATimeAndRemainsAreRemoved) {
  std::filesystem::create_directory(options_.out);
  WriteFileAtomic(options_.out + "/train.bin.tmp-123", "from a process that was killed");
  {
    const FileLock lock(options_.out + "/.prepare.lock", "it");
    EXPECT_EQ(ErrorOf([&] { PrepareData(bytes_, options_); }).substr(0, options_.out.size() + 31),
              options_.out + " is in use by another process (");
  }
  PrepareData(bytes_, options_);
  EXPECT_FALSE(FileExists(options_.out + "/train.bin.tmp-123"));
}

}  // namespace
}  // namespace denseformer

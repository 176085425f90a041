#include "sweep/ledger.h"

#include <gtest/gtest.h>

#include <tuple>

#include "base/error_testing.h"
#include "base/file.h"
#include "base/testing.h"
#include "base/text.h"
#include "sweep/testing.h"

namespace denseformer {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    row_.name = "row";
    row_.preset = "test";
    row_.data = "d";
    row_.seeds = {1, 2};
  }
  std::string Line(int64_t seed, double loss) const {
    return LedgerRow(row_, seed, loss).dump() + "\n";
  }

  const TemporaryDirectory scratch_;
  const std::string path_ = scratch_ / "ledger.jsonl";
  SweepRow row_;
};

TEST_F(LedgerTest, ATornLastLineIsLeftOutAndCutOff) {
  const std::string first = Line(1, 2.5), second = Line(2, 2.25);
  WriteFileAtomic(path_, first + second.substr(0, second.size() / 2));
  Ledger ledger(path_);
  EXPECT_EQ(ledger.rows().size(), 1u);
  EXPECT_EQ(ledger.Find(LedgerRow(row_, 2, 2.25)["key"]), nullptr);
  ledger.Append(LedgerRow(row_, 2, 2.25));
  EXPECT_EQ(ReadFile(path_), first + second);
  EXPECT_EQ(Ledger(path_).rows().size(), 2u);
}

TEST_F(LedgerTest, ALineWithoutItsEndIsTorn) {
  const std::string line = Line(1, 2.5);
  WriteFileAtomic(path_, line.substr(0, line.size() - 1));
  EXPECT_TRUE(Ledger(path_).rows().empty());
}

TEST_F(LedgerTest, IdenticalLinesAreOneRun) {
  const LedgerJson key = LedgerRow(row_, 1, 2.5)["key"];
  const std::string line = Line(1, 2.5);
  const std::string studies =
      LedgerJson({{"key", key}, {"studies", {{"cosine", {{"cosine", {1}}}}}}}).dump() + "\n";
  WriteFileAtomic(path_, line + studies + Line(2, 2.25) + line + studies);
  const Ledger ledger(path_);
  ASSERT_EQ(ledger.rows().size(), 2u);
  EXPECT_TRUE(ledger.Find(key)->at("studies").contains("cosine"));
}

TEST_F(LedgerTest, FieldsOfAnotherTypeAreAnError) {
  const std::tuple<const char*, LedgerJson, const char*> cases[] = {
      {"loss", "2.5", "ledger.jsonl:1: a finished run needs a loss"},
      {"perplexity", nullptr, "ledger.jsonl:1: a finished run needs a perplexity"},
      {"parameters", {1}, "ledger.jsonl:1: parameters: expected a number"},
      {"tokens_per_second", nullptr, "ledger.jsonl:1: tokens_per_second: expected a number"},
      {"cpu_name", 3, "ledger.jsonl:1: cpu_name: expected text"},
      {"options", {{"model.dpeth", 3}}, "ledger.jsonl:1: options: unknown key 'model.dpeth'"},
  };
  for (const auto& [key, value, message] : cases) {
    LedgerJson row = LedgerRow(row_, 1, 2.5);
    row[key] = value;
    WriteFileAtomic(path_, row.dump() + "\n");
    ExpectError(ErrorCode::kCorrupt, message, [&] { Ledger ledger(path_); });
  }
}

TEST_F(LedgerTest, TwoResultsOfARunAreAnError) {
  WriteFileAtomic(path_, Line(1, 2.5) + Line(1, 2.75));
  ExpectError(ErrorCode::kCorrupt, "ledger.jsonl:2: the run", [&] { Ledger ledger(path_); });
}

}  // namespace
}  // namespace denseformer

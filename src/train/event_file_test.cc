// A strict parser of TensorBoard's format reads what the writer wrote.
#include "train/event_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/testing.h"

namespace denseformer {
namespace {

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  int session_status = 0;
  std::vector<std::pair<std::string, float>> values;
};

// Reads from the front of a text; every error throws.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool done() const { return text_.empty(); }
  std::string_view Take(size_t size) {
    if (size > text_.size()) throw std::runtime_error("truncated");
    const std::string_view taken = text_.substr(0, size);
    text_.remove_prefix(size);
    return taken;
  }
  uint64_t Fixed(int size) {
    const std::string_view bytes = Take(size);
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return value;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(Take(1)[0]);
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
    throw std::runtime_error("varint");
  }
  std::string_view Bytes() { return Take(Varint()); }

 private:
  std::string_view text_;
};

std::pair<std::string, float> ParseValue(std::string_view text) {
  std::pair<std::string, float> result;
  Reader reader(text);
  EXPECT_EQ(reader.Varint(), 1 * 8 + 2u);
  result.first = reader.Bytes();
  EXPECT_EQ(reader.Varint(), 2 * 8 + 5u);
  result.second = std::bit_cast<float>(static_cast<uint32_t>(reader.Fixed(4)));
  EXPECT_TRUE(reader.done());
  return result;
}

Event ParseEvent(std::string_view text) {
  Event event;
  Reader reader(text);
  while (!reader.done()) {
    const uint64_t tag = reader.Varint();
    if (tag == 1 * 8 + 1) {
      event.wall_time = std::bit_cast<double>(reader.Fixed(8));
    } else if (tag == 2 * 8) {
      event.step = static_cast<int64_t>(reader.Varint());
    } else if (tag == 3 * 8 + 2) {
      event.file_version = reader.Bytes();
    } else if (tag == 5 * 8 + 2) {
      Reader summary(reader.Bytes());
      while (!summary.done()) {
        EXPECT_EQ(summary.Varint(), 1 * 8 + 2u);
        event.values.push_back(ParseValue(summary.Bytes()));
      }
    } else if (tag == 7 * 8 + 2) {
      Reader log(reader.Bytes());
      EXPECT_EQ(log.Varint(), 1 * 8u);
      event.session_status = static_cast<int>(log.Varint());
      EXPECT_TRUE(log.done());
    } else {
      throw std::runtime_error("unknown field");
    }
  }
  return event;
}

// CRC32C bit by bit.
uint32_t PlainCrc32c(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

uint32_t Unmask(uint64_t masked) {
  return std::rotl(static_cast<uint32_t>(masked) - 0xa282ead8, 15);
}

std::vector<Event> ParseFile(const std::string& path) {
  const std::string text = ReadFile(path);
  Reader reader(text);
  std::vector<Event> events;
  while (!reader.done()) {
    const std::string_view length_bytes = reader.Take(8);
    EXPECT_EQ(Unmask(reader.Fixed(4)), PlainCrc32c(length_bytes));
    const std::string_view data = reader.Take(Reader(length_bytes).Fixed(8));
    EXPECT_EQ(Unmask(reader.Fixed(4)), PlainCrc32c(data));
    events.push_back(ParseEvent(data));
  }
  return events;
}

TEST(EventFileTest, Crc32cOfKnownTexts) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(EventFileTest, AStrictParserReadsIt) {
  const TemporaryDirectory scratch;
  EventFile file(scratch / "a/b", 0);
  file.Write(1, {{"train/loss", 3.25}, {"alpha/12/3", -0.5}});
  file.Write(300, {{"train/loss", std::numeric_limits<double>::quiet_NaN()}});
  file.Write(int64_t{1} << 40, {});
  file.Sync();
  const std::vector<Event> events = ParseFile(file.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);
  EXPECT_EQ(events[1].step, 1);
  const std::vector<std::pair<std::string, float>> expected = {{"train/loss", 3.25f},
                                                               {"alpha/12/3", -0.5f}};
  EXPECT_EQ(events[1].values, expected);
  EXPECT_EQ(events[2].step, 300);
  EXPECT_TRUE(std::isnan(events[2].values[0].second));
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
}

TEST(EventFileTest, AResumedRunAnnouncesItsFirstStep) {
  const TemporaryDirectory scratch;
  EventFile first(scratch.path(), 0), second(scratch.path(), 7);
  EXPECT_LT(first.path(), second.path());
  EXPECT_NE(first.path().find("tfevents"), std::string::npos);
  const std::vector<Event> events = ParseFile(second.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[1].session_status, 1);
}

}  // namespace
}  // namespace denseformer

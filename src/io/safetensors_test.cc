#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/mutation_testing.h"
#include "base/random.h"
#include "base/testing.h"
#include "tensor/dtype.h"

namespace denseformer {
namespace {

void WriteBytes(const std::string& path, const std::string& bytes) {
  OutputFile file(path);
  file.Write(bytes);
  file.Close();
}

std::string Written(const std::vector<TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
  std::string bytes;
  WriteSafetensors(tensors, metadata, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  return bytes;
}

// A file from the text of a header and data bytes.
std::string FileOf(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string OpenError(const std::string& bytes) {
  const TemporaryDirectory scratch;
  const std::string path = scratch / "x.safetensors";
  WriteBytes(path, bytes);
  const std::string message = ErrorOf([&] { SafetensorsFile file(path); });
  // Every message names the file.
  EXPECT_TRUE(message == "no error" || message.find(path) != std::string::npos) << message;
  return message;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SafetensorsTest, RoundTrip) {
  const TemporaryDirectory scratch;
  std::vector<float> a(6), b(100'000);
  Random random(1);
  for (float& x : a) x = random.Normal();
  for (float& x : b) x = random.Normal();
  a[1] = -0.0f;
  a[2] = std::numeric_limits<float>::infinity();
  a[3] = std::numeric_limits<float>::quiet_NaN();
  const std::string bytes = Written({{"z \"quoted\" \xc3\xa9", StoredType::kF32, {2, 3}, a.data()},
                                     {"half", StoredType::kBF16, {100'000}, b.data()},
                                     {"scalar", StoredType::kF32, {}, a.data()}},
                                    {{"format", "pt"}});
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  WriteBytes(scratch / "x", bytes);
  const SafetensorsFile file(scratch / "x");
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_TRUE(file.has_hash());
  file.VerifyHash();
  std::vector<float> read(6);
  ReadFloats(*file.Find("z \"quoted\" \xc3\xa9"), read.data());
  EXPECT_EQ(std::memcmp(read.data(), a.data(), 24), 0);
  EXPECT_EQ(file.Find("scalar")->count(), 1);
  read.resize(b.size());
  ReadFloats(*file.Find("half"), read.data());
  for (size_t i = 0; i < b.size(); ++i) ASSERT_EQ(read[i], static_cast<float>(bf16(b[i])));
  EXPECT_EQ(file.Find("other"), nullptr);
}

TEST(SafetensorsTest, EveryTypeBecomesFloat) {
  const TemporaryDirectory scratch;
  struct Case {
    const char* type;
    std::string data;
    float expected;
  };
  auto raw = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const Case cases[] = {
      {"F64", raw(-1.5), -1.5f},
      {"F32", raw(3.25f), 3.25f},
      {"F16", raw(uint16_t{0xc100}), -2.5f},
      {"BF16", raw(uint16_t{0x4049}), 3.140625f},
      {"I64", raw(int64_t{-7}), -7},
      {"I32", raw(int32_t{-8}), -8},
      {"I16", raw(int16_t{-9}), -9},
      {"I8", raw(int8_t{-10}), -10},
      {"U64", raw(uint64_t{7}), 7},
      {"U32", raw(uint32_t{4'000'000'000}), 4e9f},
      {"U16", raw(uint16_t{65535}), 65535},
      {"U8", raw(uint8_t{200}), 200},
      {"BOOL", raw(uint8_t{1}), 1},
  };
  for (const Case& c : cases) {
    const std::string header = fmt::format(
        R"({{"t":{{"dtype":"{}","shape":[1],"data_offsets":[0,{}]}}}})", c.type, c.data.size());
    WriteBytes(scratch / "x", FileOf(header, c.data));
    float value = 0;
    ReadFloats(SafetensorsFile(scratch / "x").tensors()[0], &value);
    EXPECT_EQ(value, c.expected) << c.type;
  }
}

TEST(SafetensorsTest, HalfOfEveryPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >> 15 != 0);
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), fraction != 0);
      ASSERT_EQ(std::isinf(value), fraction == 0);
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(std::abs(value), magnitude);
    }
  }
}

TEST(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(OpenError(FileOf("{}", "")), "no error");
  EXPECT_EQ(OpenError(FileOf("{}   ", "")), "no error");
  EXPECT_EQ(OpenError(FileOf(R"({"__metadata__":{"a":"b"}})", "")), "no error");
  // No elements, and tensors in another order than their names.
  EXPECT_EQ(OpenError(FileOf(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                             R"("b":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                             R"("c":{"dtype":"F32","shape":[0,5],"data_offsets":[1,1]}})",
                             "xyz")),
            "no error");
}

TEST(SafetensorsTest, RefusesEachBrokenRule) {
  auto one = [](const std::string& entry, const std::string& data = "abcd") {
    return FileOf("{\"t\":" + entry + "}", data);
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {FileOf("", ""), "does not begin with '{'"},
      {FileOf(" {}", ""), "does not begin with '{'"},
      {FileOf("[]", ""), "does not begin with '{'"},
      {FileOf("{", ""), "not JSON"},
      {FileOf("{}x", ""), "not JSON"},
      {FileOf(std::string("{}\0", 3), ""), "zero byte"},
      {FileOf("{\"\xff\":1}", ""), "not JSON"},
      {FileOf(R"({"a":[[[[1]]]]})", ""), "nested deeper"},
      {FileOf("{}", "x"), "1 bytes after the last tensor"},
      {FileOf(R"({"__metadata__":{"a":1}})", ""), "is not a string"},
      {FileOf(R"({"__metadata__":[]})", ""), "is not an object"},
      {FileOf(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "'a' appears twice"},
      {FileOf(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
              R"("t":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
              "abcd"),
       "'t' appears twice"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
              R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
              "abc"),
       "an overlap"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
              R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
              "abcde"),
       "a hole"},
      {one("3"), "expected an object"},
      {one(R"({"dtype":"F32","shape":[1]})"), "expected an object"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1})"), "expected an object"},
      {one(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})"), "dtype \"F33\" is not known"},
      {one(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"), "dtype 7 is not known"},
      {one(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})"), "shape is not a list"},
      {one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "expected a whole number"},
      {one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "expected a whole number"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "list of two numbers"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4.0]})"), "expected a whole number"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "do not fit shape"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "do not fit shape"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "truncated"},
      {one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})"), "too large"},
      // 2^62 * 4 * 4 = 2^66, which is 4 in 64 bits with the right last factor.
      {one(R"({"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16]})"),
       "overflows"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[18446744073709551612,18446744073709551616]})"),
       "expected a whole number"},
      {one(R"({"dtype":"U8","shape":[3],"data_offsets":[18446744073709551612,18446744073709551615]})"),
       "a hole"},
  };
  for (const auto& [bytes, message] : cases) {
    EXPECT_TRUE(Contains(OpenError(bytes), message)) << OpenError(bytes) << " / " << message;
  }
  const uint64_t huge[] = {100'000'001, UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63};
  for (const uint64_t length : huge) {
    std::string bytes = FileOf("{}", "");
    std::memcpy(bytes.data(), &length, 8);
    EXPECT_TRUE(Contains(OpenError(bytes), "expected at most 100000000"));
  }
}

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    std::vector<float> values(40);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 7.5f;
    bytes_ = Written({{"one", StoredType::kF32, {5, 2}, values.data()},
                      {"two", StoredType::kBF16, {7}, values.data() + 10}},
                     {{"format", "pt"}});
  }

  // What opening and checking the file says.
  std::string Check(const std::string& bytes) {
    WriteBytes(scratch_ / "x", bytes);
    return ErrorOf([&] {
      const SafetensorsFile file(scratch_ / "x");
      if (!file.has_hash()) Throw(ErrorCode::kCorrupt, "no hash");
      file.VerifyHash();
    });
  }

  TemporaryDirectory scratch_;
  std::string bytes_;
};

TEST_F(DamageTest, EachTruncationIsRefused) {
  EXPECT_EQ(Check(bytes_), "no error");
  for (size_t size = 0; size < bytes_.size(); ++size) {
    EXPECT_NE(OpenError(bytes_.substr(0, size)), "no error") << size;
  }
  EXPECT_NE(OpenError(bytes_ + "x"), "no error");
}

TEST_F(DamageTest, EachBitFlipIsDetected) {
  for (size_t bit = 0; bit < bytes_.size() * 8; ++bit) {
    std::string damaged = bytes_;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(Check(damaged), "no error") << bit;
  }
}

TEST_F(DamageTest, RandomMutationsNeverCrash) {
  Random random(3);
  for (int round = 0; round < 20'000; ++round) {
    const std::string damaged = Mutated(bytes_, "{}[]\",:0179-.eE ", random);
    if (damaged == bytes_) continue;
    ASSERT_NE(Check(damaged), "no error") << round;
  }
}

TEST(StoredTensorTest, ReadsStridedTensors) {
  std::vector<float> values(24);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  std::vector<float> out(24);
  // The transpose of a [4, 6] matrix.
  ReadFloats({"t", StoredType::kF32, {6, 4}, {1, 6}, data}, out.data());
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(out[i * 4 + j], static_cast<float>(j * 6 + i));
  }
  // A row repeated, and a tensor of three dimensions with its first two swapped.
  ReadFloats({"t", StoredType::kF32, {4, 6}, {0, 1}, data}, out.data());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(out[i], static_cast<float>(i % 6));
  ReadFloats({"t", StoredType::kF32, {3, 2, 4}, {4, 12, 1}, data}, out.data());
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(out[i], static_cast<float>((i / 8) * 4 + (i / 4 % 2) * 12 + i % 4));
  }
}

}  // namespace
}  // namespace denseformer

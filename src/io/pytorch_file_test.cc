// Files of a real PyTorch give their values; malformed and hostile ones are refused by name.
#include "io/pytorch_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mutation_testing.h"
#include "base/random.h"
#include "base/testing.h"
#include "io/python_for_tests.h"

namespace denseformer {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  OutputFile file(path);
  file.Write(bytes);
  file.Close();
}

template <class T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// An archive of stored entries, as any ZIP writer makes it.
std::string Zip(const std::vector<std::pair<std::string, std::string>>& entries,
                uint16_t method = 0, uint16_t flags = 0) {
  std::string bytes, directory;
  for (const auto& [name, content] : entries) {
    const auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const auto size = static_cast<uint32_t>(content.size());
    const std::string common = Raw(uint16_t{0}) + Raw(flags) + Raw(method) + Raw(uint32_t{0}) +
                               Raw(crc) + Raw(size) + Raw(size) +
                               Raw(static_cast<uint16_t>(name.size())) + Raw(uint16_t{0});
    directory += Raw(uint32_t{0x02014b50}) + Raw(uint16_t{0}) + common + Raw(uint16_t{0}) +
                 Raw(uint16_t{0}) + Raw(uint16_t{0}) + Raw(uint32_t{0}) +
                 Raw(static_cast<uint32_t>(bytes.size())) + name;
    bytes += Raw(uint32_t{0x04034b50}) + common + name + content;
  }
  const auto count = static_cast<uint16_t>(entries.size());
  return bytes + directory + Raw(uint32_t{0x06054b50}) + Raw(uint32_t{0}) + Raw(count) +
         Raw(count) + Raw(static_cast<uint32_t>(directory.size())) +
         Raw(static_cast<uint32_t>(bytes.size())) + Raw(uint16_t{0});
}

std::string OpenError(const std::string& bytes) {
  const TemporaryDirectory scratch;
  WriteBytes(scratch / "x.pt", bytes);
  const std::string message = ErrorOf([&] { PytorchFile file(scratch / "x.pt"); });
  EXPECT_TRUE(message == "no error" || Contains(message, scratch / "x.pt")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

std::string PickleError(const std::string& pickle, const std::string& storage = "") {
  return OpenError(Zip({{"a/data.pkl", pickle}, {"a/data/0", storage}, {"a/version", "3\n"}}));
}

std::string Text(const std::string& text) {
  return "X" + Raw(static_cast<uint32_t>(text.size())) + text;
}
std::string Int(int64_t value) { return "\x8a\x08" + Raw(value); }

// A state dict of one tensor "t" with these parts.
std::string OneTensor(int64_t count, int64_t offset, const std::vector<int64_t>& shape,
                      const std::vector<int64_t>& strides) {
  auto tuple = [](const std::vector<int64_t>& values) {
    std::string text = "(";
    for (const int64_t value : values) text += Int(value);
    return text + "t";
  };
  return "\x80\x02}" + Text("t") + "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") +
         "ctorch\nFloatStorage\n" + Text("0") + Text("cpu") + Int(count) + "tQ" + Int(offset) +
         tuple(shape) + tuple(strides) + "\x89" + "ccollections\nOrderedDict\n)RtRs.";
}

TEST(PytorchFileTest, HandMadeFile) {
  const std::string storage = Raw(1.0f) + Raw(2.0f) + Raw(3.0f) + Raw(4.0f);
  const TemporaryDirectory scratch;
  WriteBytes(scratch / "x.pt", Zip({{"a/data.pkl", OneTensor(4, 1, {3}, {1})},
                                    {"a/data/0", storage},
                                    {"a/byteorder", "little"}}));
  const PytorchFile file(scratch / "x.pt");
  ASSERT_EQ(file.tensors().size(), 1u);
  std::vector<float> values(3);
  ReadFloats(file.tensors()[0], values.data());
  EXPECT_EQ(values, (std::vector<float>{2, 3, 4}));
}

TEST(PytorchFileTest, TensorsMustLieWithinTheirStorage) {
  const std::string storage(16, 'x');
  auto error = [&](int64_t count, int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
    return PickleError(OneTensor(count, offset, shape, strides), storage);
  };
  EXPECT_EQ(error(4, 0, {2, 2}, {2, 1}), "no error");
  EXPECT_EQ(error(4, 0, {0, 1000}, {1000, 1}), "no error");
  EXPECT_TRUE(Contains(error(5, 0, {1}, {1}), "storage of 5 elements in an entry of 16 bytes"));
  EXPECT_TRUE(Contains(error(INT64_MAX, 0, {1}, {1}), "storage of"));
  EXPECT_TRUE(Contains(error(-1, 0, {1}, {1}), "malformed storage"));
  EXPECT_TRUE(Contains(error(4, 1, {4}, {1}), "leave the storage"));
  EXPECT_TRUE(Contains(error(4, INT64_MAX, {4}, {1}), "leave the storage"));
  EXPECT_TRUE(Contains(error(4, -1, {4}, {1}), "malformed offset"));
  EXPECT_TRUE(Contains(error(4, 0, {2, 2}, {INT64_MAX, 1}), "leave the storage"));
  EXPECT_TRUE(Contains(error(4, 0, {3}, {INT64_MAX}), "leave the storage"));
  EXPECT_TRUE(Contains(error(4, 0, {-3}, {1}), "malformed offset"));
  EXPECT_TRUE(Contains(error(4, 0, {3}, {-1}), "malformed offset"));
  EXPECT_TRUE(Contains(error(4, 0, {2, 2}, {1}), "malformed offset"));
  // Repeated elements make a tensor of any size out of one.
  EXPECT_TRUE(Contains(error(4, 0, {INT64_MAX / 2}, {0}), "leave the storage"));
  EXPECT_TRUE(Contains(error(4, 0, std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1)),
                       "malformed offset"));
}

TEST(PytorchFileTest, HostilePicklesAreRefusedByName) {
  const std::pair<std::string, const char*> cases[] = {
      {"\x80\x02"
       "cposix\nsystem\nX\x04" +
           std::string(3, '\0') + "true\x85R.",
       "'posix.system'"},
      {"\x80\x02"
       "c__builtin__\neval\n.",
       "'__builtin__.eval'"},
      {"\x80\x02"
       "cbuiltins\nexec\n.",
       "'builtins.exec'"},
      {"\x80\x04\x8c\x02os\x8c\x06system\x93.", "'os.system'"},
      {"\x80\x02"
       "ctorch\nload\n.",
       "'torch.load'"},
      {"\x80\x02"
       "ctorch._utils\n_rebuild_tensor\n.",
       "'torch._utils._rebuild_tensor'"},
      {"\x80\x02"
       "ctorch.optimum\nX\n.",
       "'torch.optimum.X'"},
      {"\x80\x02(cos\nsystem\n.", "'os.system'"},
      {"\x80\x02(ios\nsystem\n.", "call of 'os.system'"},
      // getattr on a dict type, not on an optimizer.
      {"\x80\x02"
       "c__builtin__\ngetattr\nccollections\nOrderedDict\nX\x01" +
           std::string(3, '\0') + "x\x86R.",
       "'__builtin__.getattr'"},
  };
  for (const auto& [pickle, message] : cases) {
    const std::string error = PickleError(pickle);
    EXPECT_TRUE(Contains(error, message)) << error;
    EXPECT_TRUE(Contains(error, "nothing was executed")) << error;
  }
}

TEST(PytorchFileTest, MalformedPicklesAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "1 bytes wanted, 0 left"},
      {"\x80\x02", "1 bytes wanted"},
      {"\x80\x01}.", "protocol 1"},
      {"\x80\x06}.", "protocol 6"},
      {"\x80\x02.", "the stack is empty"},
      {"\x80\x02}}.", "values left on the stack"},
      {"\x80\x02}.}", "1 bytes behind the end"},
      {"\x80\x02}(.", "the stack is empty"},
      {"\x80\x02t.", "no mark"},
      {"\x80\x02}h\x05.", "memo 5 is empty"},
      {"\x80\x02X\xff\xff\xff\xff.", "4294967295 bytes wanted"},
      {"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "18446744073709551615 bytes wanted"},
      {"\x80\x02\x8b\xff\xff\xff\xff.", "bytes wanted"},
      {"\x80\x02}Na.", "no list"},
      {"\x80\x02]NNs.", "no dict"},
      {"\x80\x02}(Nu.", "a key without a value"},
      {"\x80\x02NNR.", "a call of what is no name"},
      {"\x80\x02NN\x81.", "a new object of what is no name"},
      {"\x80\x02NNb.", "a state for what has none"},
      {"\x80\x02NN\x93.", "a name that is no text"},
      {"\x80\x02\x82\x01.", "opcode 0x82"},
      {"\x80\x02"
       "cos",
       "a line without an end"},
      {"\x80\x02" + std::string(2000, '(') + ".", "more than 1000 marks"},
      {"\x80\x02" + std::string(2'100'000, 'N') + ".", "more than 2000000 values"},
      {"\x80\x02N" + std::string(2'100'000, '2') + ".", "more than 2000000 values on the stack"},
      {"\x80\x02]q\0a.", "offset"},
      {"\x80\x02N.", "the top level is not a dict"},
      {"\x80\x02}NNs.", "entry 0 of the state dict is not a named tensor"},
      {"\x80\x02}" + Text("w") + "Ns.", "entry 'w' of the state dict is not a named tensor"},
  };
  for (const auto& [pickle, message] : cases) {
    EXPECT_TRUE(Contains(PickleError(pickle), message)) << PickleError(pickle) << " / " << message;
  }
  // A list that holds itself is no trouble.
  EXPECT_EQ(PickleError(std::string("\x80\x02]q\0h\0a0}.", 11)), "no error");
}

TEST(PytorchFileTest, ArchivesThatAreNot) {
  const std::string pickle = "\x80\x02}.";
  EXPECT_EQ(OpenError(Zip({{"a/data.pkl", pickle}})), "no error");
  EXPECT_EQ(OpenError(Zip({{"data.pkl", pickle}})), "no error");
  EXPECT_TRUE(Contains(OpenError(""), "no ZIP archive"));
  EXPECT_TRUE(Contains(OpenError("PK\x03\x04"), "no end of a ZIP archive"));
  EXPECT_TRUE(Contains(OpenError(Zip({{"a/other", ""}})), "0 entries NAME/data.pkl"));
  EXPECT_TRUE(Contains(OpenError(Zip({{"a/data.pkl", pickle}, {"b/data.pkl", pickle}})),
                       "2 entries NAME/data.pkl"));
  EXPECT_TRUE(Contains(OpenError(Zip({{"a/data.pkl", pickle}, {"a/data.pkl", pickle}})),
                       "'a/data.pkl' appears twice"));
  EXPECT_TRUE(Contains(OpenError(Zip({{"a/data.pkl", pickle}}, /*method=*/8)), "is compressed"));
  EXPECT_TRUE(Contains(OpenError(Zip({{"a/data.pkl", pickle}}, 0, /*flags=*/1)), "is encrypted"));
  EXPECT_TRUE(Contains(OpenError(Zip({{"a/data.pkl", pickle}, {"a/byteorder", "big"}})),
                       "byte order 'big'"));
  EXPECT_TRUE(
      Contains(OpenError(Zip({{"a/data.pkl", pickle}, {"a/constants.pkl", ""}})), "TorchScript"));
  std::string altered = Zip({{"a/data.pkl", pickle}});
  altered[altered.find(pickle) + 2] = ']';
  EXPECT_TRUE(Contains(OpenError(altered), "has CRC"));
}

TEST(PytorchFileTest, TruncationsAndMutationsNeverCrash) {
  const std::string bytes = Zip({{"a/data.pkl", OneTensor(4, 0, {2, 2}, {1, 2})},
                                 {"a/data/0", std::string(16, 'x')},
                                 {"a/version", "3\n"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(OpenError(bytes.substr(0, size)), "no error") << size;
  }
  const std::string pickle = OneTensor(4, 0, {2, 2}, {1, 2});
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    // Half of them with a right CRC, so that the machine gets to see them.
    const bool inside = round % 2 == 0;
    const std::string damaged = Mutated(inside ? pickle : bytes, "().}tRqXKMJQ", random);
    const TemporaryDirectory scratch;
    WriteBytes(
        scratch / "x.pt",
        inside ? Zip({{"a/data.pkl", damaged}, {"a/data/0", std::string(16, 'x')}}) : damaged);
    try {
      const PytorchFile file(scratch / "x.pt");
      for (const StoredTensor& tensor : file.tensors()) {
        std::vector<float> values(std::min<int64_t>(tensor.count(), 1 << 20));
        if (tensor.count() <= 1 << 20) ReadFloats(tensor, values.data());
      }
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
}

// Files made by a real PyTorch.
class RealPytorchTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!HavePytorch()) return;
    directory_ = new TemporaryDirectory;
    ASSERT_TRUE(RunPython("make_pt_files.py", directory_->path()));
  }
  static void TearDownTestSuite() { delete std::exchange(directory_, nullptr); }
  void SetUp() override {
    if (directory_ == nullptr) GTEST_SKIP() << Python() << " has no torch";
  }
  static std::string Error(const std::string& name) {
    return ErrorOf([&] { PytorchFile file(*directory_ / name); });
  }

  static TemporaryDirectory* directory_;
};
TemporaryDirectory* RealPytorchTest::directory_ = nullptr;

TEST_F(RealPytorchTest, ValuesOfEveryTypeAndView) {
  const auto expected = nlohmann::json::parse(ReadFile(*directory_ / "values.json"));
  for (const char* name : {"values.pt", "nested.pt", "protocol4.pt"}) {
    const PytorchFile file(*directory_ / name);
    EXPECT_EQ(file.tensors().size(), expected.size());
    for (const StoredTensor& tensor : file.tensors()) {
      const auto& entry = expected.at(tensor.name);
      EXPECT_EQ(tensor.shape, entry["shape"].get<std::vector<int64_t>>()) << tensor.name;
      std::vector<float> values(tensor.count());
      ReadFloats(tensor, values.data());
      EXPECT_EQ(values, entry["values"].get<std::vector<float>>()) << tensor.name;
    }
  }
}

TEST_F(RealPytorchTest, RefusesWhatHoldsNoWeights) {
  EXPECT_TRUE(Contains(Error("hostile.pt"), "'posix.system'")) << Error("hostile.pt");
  EXPECT_TRUE(Contains(Error("legacy.pt"), "load and save it again with PyTorch"));
  EXPECT_TRUE(Contains(Error("list.pt"), "the top level is not a dict"));
  EXPECT_TRUE(Contains(Error("number.pt"), "entry 'a' of the state dict is not a named tensor"));
  EXPECT_TRUE(Contains(Error("script.pt"), "TorchScript")) << Error("script.pt");
}

}  // namespace
}  // namespace denseformer

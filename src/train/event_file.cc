#include "train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, reflected

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}();

uint32_t MaskedCrc(std::string_view data) { return std::rotr(Crc32c(data), 15) + 0xa282ead8; }

// Little-endian bytes of an unsigned integer.
template <class T>
std::string Bytes(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

// Fields of protocol buffers by wire type.
std::string VarintField(int field, uint64_t value) { return Varint(field * 8) + Varint(value); }
std::string Fixed64Field(int field, double value) {
  return Varint(field * 8 + 1) + Bytes(std::bit_cast<uint64_t>(value));
}
std::string Fixed32Field(int field, float value) {
  return Varint(field * 8 + 5) + Bytes(std::bit_cast<uint32_t>(value));
}
std::string BytesField(int field, std::string_view value) {
  return Varint(field * 8 + 2) + Varint(value.size()) + std::string(value);
}

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string NewPath(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) ThrowErrno(error.value(), "cannot make the directory {}", directory);
  // TensorBoard reads the files of a directory in the order of their names.
  const auto nanoseconds =
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return fmt::format("{}/events.out.tfevents.{:010}.{:09}.{}", directory, nanoseconds / 1000000000,
                     nanoseconds % 1000000000, getpid());
}

}  // namespace

uint32_t Crc32c(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::string& directory, int64_t first_step) : out_(NewPath(directory)) {
  WriteRecord(Fixed64Field(1, WallTime()) + BytesField(3, "brain.Event:2"));
  if (first_step > 0) {
    WriteRecord(Fixed64Field(1, WallTime()) + VarintField(2, static_cast<uint64_t>(first_step)) +
                BytesField(7, VarintField(1, 1)));
  }
}

void EventFile::Write(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    summary += BytesField(1, BytesField(1, tag) + Fixed32Field(2, static_cast<float>(value)));
  }
  WriteRecord(Fixed64Field(1, WallTime()) + VarintField(2, static_cast<uint64_t>(step)) +
              BytesField(5, summary));
}

void EventFile::WriteRecord(std::string_view data) {
  const std::string length = Bytes(uint64_t{data.size()});
  out_.Write(length + Bytes(MaskedCrc(length)) + std::string(data) + Bytes(MaskedCrc(data)));
}

}  // namespace denseformer

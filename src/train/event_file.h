// TensorBoard event files.
//
//   file    record*
//   record  u64 length, u32 crc of the length, data, u32 crc of the data   (little-endian,
//   TFRecord) crc     crc32c rotated right by 15 bits, plus 0xa282ead8 data    Event: 1 wall_time
//   (double), 2 step (int64), 3 file_version ("brain.Event:2", in the
//           first record), 5 summary { 1 value { 1 tag, 2 simple_value (float) } }, 7 session_log {
//           1 status (1 = start) }
//
// Each process writes a file of its own. One that resumes begins with session_log at its first
// step: TensorBoard then forgets what an earlier file has from that step on.
#ifndef DENSEFORMER_TRAIN_EVENT_FILE_H_
#define DENSEFORMER_TRAIN_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace denseformer {

uint32_t Crc32c(std::string_view data);

class EventFile {
 public:
  // Makes `directory` where it is missing, and a new file in it.
  EventFile(const std::string& directory, int64_t first_step);

  // One event with all `values` (tag, value).
  void Write(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  void Sync() { out_.Sync(); }
  const std::string& path() const { return out_.path(); }

 private:
  void WriteRecord(std::string_view data);

  OutputFile out_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_EVENT_FILE_H_

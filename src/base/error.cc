#include "base/error.h"

#include <iterator>
#include <string_view>

namespace denseformer {
namespace {

struct CodeRow {
  ErrorCode code;
  const char* name;
  int exit_status;
  int http_status;
};

constexpr CodeRow kCodes[] = {
    {ErrorCode::kUsage, "usage", 2, 400},
    {ErrorCode::kInvalid, "invalid", 1, 400},
    {ErrorCode::kNotFound, "not found", 1, 404},
    {ErrorCode::kCorrupt, "corrupt", 1, 500},
    {ErrorCode::kIo, "input/output", 1, 500},
    {ErrorCode::kBusy, "busy", 1, 503},
    {ErrorCode::kUnsupported, "unsupported", 1, 501},
    {ErrorCode::kNonFinite, "not finite", 1, 500},
    {ErrorCode::kInterrupted, "interrupted", 130, 503},
    {ErrorCode::kInternal, "internal", 1, 500},
};

const CodeRow& Row(ErrorCode code) {
  for (const CodeRow& row : kCodes) {
    if (row.code == code) return row;
  }
  return kCodes[std::size(kCodes) - 1];
}

}  // namespace

const char* ErrorName(ErrorCode code) { return Row(code).name; }
int ExitStatus(ErrorCode code) { return Row(code).exit_status; }
int HttpStatus(ErrorCode code) { return Row(code).http_status; }

void CheckFailed(const char* file, int line, const std::string& message) {
  // From src/ on: where the sources lay when they were compiled is of no use to the reader.
  std::string_view place = file;
  const size_t source = place.rfind("/src/");
  if (source != std::string_view::npos) place.remove_prefix(source + 1);
  Throw(ErrorCode::kInternal, "{}:{}: check failed: {} (this is a bug, please report it)", place,
        line, message);
}

}  // namespace denseformer

#include "base/error.h"

#include <set>
#include <string>

#include "base/error_testing.h"

namespace denseformer {
namespace {

constexpr ErrorCode kAll[] = {
    ErrorCode::kUsage,       ErrorCode::kInvalid, ErrorCode::kNotFound,    ErrorCode::kCorrupt,
    ErrorCode::kIo,          ErrorCode::kBusy,    ErrorCode::kUnsupported, ErrorCode::kNonFinite,
    ErrorCode::kInterrupted, ErrorCode::kInternal};

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (ErrorCode code : kAll) names.insert(ErrorName(code));
  EXPECT_EQ(names.size(), std::size(kAll));
}

TEST(Error, ExitStatusIsTwoForAWrongCallAndNeverZero) {
  for (ErrorCode code : kAll) {
    EXPECT_NE(ExitStatus(code), 0) << ErrorName(code);
    EXPECT_EQ(ExitStatus(code) == 2, code == ErrorCode::kUsage) << ErrorName(code);
  }
}

TEST(Error, HttpStatusBlamesTheRequestOnlyForWhatItSent) {
  EXPECT_EQ(HttpStatus(ErrorCode::kUsage), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kInvalid), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kNotFound), 404);
  EXPECT_EQ(HttpStatus(ErrorCode::kBusy), 503);
  EXPECT_EQ(HttpStatus(ErrorCode::kInternal), 500);
}

TEST(Error, ThrowFormats) {
  ExpectError(ErrorCode::kCorrupt, "x.bin: got 3, expected 4",
              [] { Throw(ErrorCode::kCorrupt, "{}: got {}, expected {}", "x.bin", 3, 4); });
}

TEST(Error, ThrowErrnoSaysWhatTheSystemSaid) {
  ExpectError(ErrorCode::kIo, "cannot write to x: No space left on device",
              [] { ThrowErrno(ENOSPC, "cannot write to {}", "x"); });
  ExpectError(ErrorCode::kNotFound, "No such file", [] { ThrowErrno(ENOENT, "cannot open x"); });
}

TEST(Error, CheckNamesFileLineAndCondition) {
  const int line = __LINE__ + 1;
  const auto fail = [] { DF_CHECK(1 + 1 == 3); };
  ExpectError(ErrorCode::kInternal,
              fmt::format("src/base/error_test.cc:{}: check failed: 1 + 1 == 3", line), fail);
  // The path begins at src/, whatever the folder that the sources were compiled in.
  try {
    fail();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("src/", 0), 0u) << error.what();
  }
}

TEST(Error, CheckWithExplanation) {
  DF_CHECK_MSG(true, "never formatted {}", 1);
  ExpectError(ErrorCode::kInternal, "false: rows 7", [] { DF_CHECK_MSG(false, "rows {}", 7); });
}

}  // namespace
}  // namespace denseformer

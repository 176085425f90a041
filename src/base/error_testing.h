// Expecting errors in tests.
#ifndef DENSEFORMER_BASE_ERROR_TESTING_H_
#define DENSEFORMER_BASE_ERROR_TESTING_H_

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace denseformer {

// Runs `call`, which must throw an Error with `code` whose message contains `part` and is one line.
template <class F>
void ExpectError(ErrorCode code, const std::string& part, F call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one with '" << part << "'";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_STREQ(ErrorName(error.code()), ErrorName(code)) << message;
    EXPECT_NE(message.find(part), std::string::npos)
        << "got '" << message << "', expected it to contain '" << part << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_ERROR_TESTING_H_

// What is wrong with a request, with the parameter that is to blame.
#ifndef DENSEFORMER_SERVE_REQUEST_ERROR_H_
#define DENSEFORMER_SERVE_REQUEST_ERROR_H_

#include <string>

#include "denseformer/error.h"
#include "serve/http.h"

namespace denseformer {

class RequestError : public Error {
 public:
  // `param` is empty where no single one is to blame.
  RequestError(int status, std::string param, const std::string& message,
               ErrorCode code = ErrorCode::kInvalid)
      : Error(code, message), status_(status), param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string param_;
};

// The body of an answer with an error, as OpenAI's: {"error": {"message", "type", "param",
// "code"}}.
std::string ErrorBody(int status, const std::string& message, const std::string& param = "");

HttpResponse ErrorResponse(int status, const std::string& message, const std::string& param = "");

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_REQUEST_ERROR_H_

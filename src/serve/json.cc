#include "serve/json.h"

#include "base/error.h"
#include "base/text.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

constexpr int kDeepest = 32;  // levels of a request: none needs more than five

struct StatusType {
  int status;
  const char* type;
  const char* code;  // nullptr: none
};

constexpr StatusType kTypes[] = {
    {400, "invalid_request_error", nullptr},
    {401, "authentication_error", "invalid_api_key"},
    {403, "permission_error", "host_not_allowed"},
    {404, "invalid_request_error", "not_found"},
    {429, "rate_limit_error", "queue_full"},
    {503, "unavailable_error", "unavailable"},
    {504, "timeout_error", "timeout"},
    {500, "server_error", nullptr},
};

}  // namespace

std::string ToText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ParseBody(std::string_view body) {
  const auto too_deep = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) {
      throw RequestError(400, "", fmt::format("body: nested deeper than {} levels", kDeepest));
    }
    return true;
  };
  try {
    Json json = Json::parse(body, too_deep);
    if (!json.is_object()) {
      throw RequestError(
          400, "", fmt::format("body: got JSON of type {}, expected an object", json.type_name()));
    }
    return json;
  } catch (const Json::exception& error) {
    throw RequestError(400, "", fmt::format("body: not JSON: {}", JsonProblem(error.what())));
  }
}

std::string ErrorBody(int status, const std::string& message, const std::string& param) {
  const StatusType* row = &kTypes[status < 500 ? 0 : std::size(kTypes) - 1];
  for (const StatusType& candidate : kTypes) {
    if (candidate.status == status) row = &candidate;
  }
  Json error = {{"message", message}, {"type", row->type}, {"param", nullptr}, {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (row->code != nullptr) error["code"] = row->code;
  return ToText({{"error", error}});
}

HttpResponse ErrorResponse(int status, const std::string& message, const std::string& param) {
  return {.status = status, .body = ErrorBody(status, message, param)};
}

}  // namespace denseformer

#include "serve/json.h"

#include <functional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

// Far more than any request needs; parsed, a few bytes of a body become a hundred, and finding the
// members of an object takes the square of their number.
constexpr int kDeepest = 32;  // levels
constexpr int kMostMembers = 256;
constexpr int kMostParts = 1 << 16;  // strings, names of members, lists and objects

// Ends the parsing of a body that is within its size but not worth the memory and the time.
class PartCounter {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (depth > kDeepest) {
      throw RequestError(400, "", fmt::format("body: nested deeper than {} levels", kDeepest));
    }
    if (event == Event::object_start) members_.push_back(0);
    if (event == Event::object_end) members_.pop_back();
    if (event == Event::key && ++members_.back() > kMostMembers) {
      throw RequestError(400, "",
                         fmt::format("body: an object with more than {} members", kMostMembers));
    }
    const bool part = event == Event::object_start || event == Event::array_start ||
                      event == Event::key || (event == Event::value && value.is_string());
    if (part && ++parts_ > kMostParts) {
      throw RequestError(400, "",
                         fmt::format("body: more than {} strings, lists and objects", kMostParts));
    }
    return true;
  }

 private:
  std::vector<int> members_;  // of the objects around
  int parts_ = 0;
};

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

std::string Shortened(std::string_view text) {
  constexpr size_t kMost = 64;
  return std::string(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

std::string ToText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ParseBody(std::string_view body) {
  PartCounter counter;
  try {
    Json json = Json::parse(body, std::ref(counter));
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

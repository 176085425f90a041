#include "serve/json.h"

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "serve/request_error.h"

namespace denseformer {
namespace {

// Far more than any request needs; parsed, a few bytes of a body become a hundred, and finding the
// members of an object takes the square of their number.
constexpr size_t kDeepest = 32;  // levels
constexpr int kMostMembers = 256;
constexpr int kMostParts = 1 << 16;  // strings, names of members, lists and objects

// Passes over a body before it is parsed, and throws where it is within its size but not worth the
// memory and the time. Not as a callback of the parser, which looks through all members of a list
// after each object in it.
class PartCounter : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return Part(); }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Begin(); }
  bool key(string_t&) override {
    if (++members_.back() > kMostMembers) {
      throw RequestError(400, "",
                         fmt::format("body: an object with more than {} members", kMostMembers));
    }
    return Part();
  }
  bool end_object() override { return End(); }
  bool start_array(size_t) override { return Begin(); }
  bool end_array() override { return End(); }
  // The parser says what is wrong.
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Begin() {
    members_.push_back(0);
    if (members_.size() > kDeepest) {
      throw RequestError(400, "", fmt::format("body: nested deeper than {} levels", kDeepest));
    }
    return Part();
  }
  bool End() {
    members_.pop_back();
    return true;
  }
  bool Part() {
    if (++parts_ > kMostParts) {
      throw RequestError(400, "",
                         fmt::format("body: more than {} strings, lists and objects", kMostParts));
    }
    return true;
  }

  std::vector<int> members_;  // of the objects and lists around
  int parts_ = 0;
};

struct StatusType {
  int status;
  const char* type;
  const char* code;  // nullptr: none
};

constexpr StatusType kTypes[] = {
    {400, "invalid_request_error", nullptr},  {401, "authentication_error", "invalid_api_key"},
    {403, "permission_error", "not_allowed"}, {404, "invalid_request_error", "not_found"},
    {429, "rate_limit_error", "queue_full"},  {503, "unavailable_error", "unavailable"},
    {504, "timeout_error", "timeout"},        {500, "server_error", nullptr},
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
  Json::sax_parse(body, &counter);
  try {
    Json json = Json::parse(body);
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

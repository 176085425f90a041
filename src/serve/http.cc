#include "serve/http.h"

namespace denseformer {
namespace {

struct StatusRow {
  int status;
  const char* name;
};

constexpr StatusRow kStatuses[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Payload Too Large"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

const char* HttpStatusName(int status) {
  for (const StatusRow& row : kStatuses) {
    if (row.status == status) return row.name;
  }
  return "Unknown";
}

}  // namespace denseformer

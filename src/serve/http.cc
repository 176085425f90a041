#include "serve/http.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

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

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string HttpDate(std::time_t time) {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(time));
}

std::string HttpAuthority(std::string_view host, int port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

std::string TargetPath(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t path = target.find_first_of("/?");
    target = path == std::string_view::npos ? std::string_view() : target.substr(path);
    if (!target.starts_with('/')) target = "/";
    break;
  }
  target = target.substr(0, target.find('?'));
  std::string path;
  for (size_t n = 0; n < target.size(); ++n) {
    const int high = n + 2 < target.size() ? HexDigit(target[n + 1]) : -1;
    const int low = n + 2 < target.size() ? HexDigit(target[n + 2]) : -1;
    if (target[n] != '%' || high < 0 || low < 0) {
      path += target[n];
      continue;
    }
    path += static_cast<char>(high * 16 + low);
    n += 2;
  }
  return path;
}

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

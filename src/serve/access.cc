#include "serve/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr std::string_view kScheme = "bearer ";  // in any case

// Reads all of `given`, whatever it is.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t n = 0; n < given.size(); ++n) {
    difference |= static_cast<unsigned char>(given[n] ^ key[n % key.size()]);
  }
  return difference == 0;
}

// The name in a Host header, in lower case and without the port.
std::string HostName(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0;
  std::string name(host.substr(0, host.find(':', bracket)));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

std::vector<std::string> ParseApiKeys(std::string_view text, const std::string& file_name) {
  std::vector<std::string> keys;
  int line = 0;
  for (const std::string& row : Split(text, '\n')) {
    ++line;
    const std::string_view key = Trim(row);
    if (key.empty() || key[0] == '#') continue;
    const auto printable = [](char c) { return c > ' ' && c < 0x7F; };
    if (!std::all_of(key.begin(), key.end(), printable)) {
      Throw(ErrorCode::kInvalid,
            "{}: line {}: expected a key of printable ASCII characters without spaces", file_name,
            line);
    }
    keys.emplace_back(key);
  }
  if (keys.empty())
    Throw(ErrorCode::kInvalid, "{}: no key in it, expected one per line", file_name);
  return keys;
}

bool HasApiKey(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  std::string_view given = request.Header("authorization");
  const bool bearer =
      given.size() >= kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), given.begin(), [](char lower, char c) {
        return std::tolower(static_cast<unsigned char>(c)) == lower;
      });
  if (!bearer) return false;
  given.remove_prefix(kScheme.size());
  bool found = false;
  for (const std::string& key : keys) found |= SameKey(given, key);
  return found;
}

bool IsLoopbackHost(std::string_view host) {
  const std::string name = HostName(host);
  in_addr address{};  // in network order: the first byte is the first number
  return name.empty() || name == "localhost" || name == "[::1]" ||
         (inet_pton(AF_INET, name.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127);
}

bool HasLocalHost(const HttpRequest& request, const std::vector<std::string>& names) {
  const std::string_view host = request.Header("host");
  return IsLoopbackHost(host) || std::any_of(names.begin(), names.end(), [&](const auto& name) {
           return HostName(name) == HostName(host);
         });
}

bool IsFromOtherSite(const HttpRequest& request, const std::string& allowed) {
  return request.Header("sec-fetch-site") == "cross-site" && CorsHeaders(request, allowed).empty();
}

HttpHeaders CorsHeaders(const HttpRequest& request, const std::string& allowed) {
  const std::string_view origin = request.Header("origin");
  if (allowed.empty() || origin.empty() || (allowed != "*" && allowed != origin)) return {};
  return {{"Access-Control-Allow-Origin", allowed},
          {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
          // The star does not stand for Authorization. Clients send headers of their own.
          {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
          {"Access-Control-Expose-Headers", "Retry-After"},
          {"Vary", "Origin"}};
}

}  // namespace denseformer

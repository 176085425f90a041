// Who may call: API keys, and web pages of other origins.
#ifndef DENSEFORMER_SERVE_ACCESS_H_
#define DENSEFORMER_SERVE_ACCESS_H_

#include <string>
#include <string_view>
#include <vector>

#include "serve/http.h"

namespace denseformer {

// The keys of a file's text: one per line; empty lines and lines from '#' on are ignored. Throws
// kInvalid where there is none, or one that no header can carry.
std::vector<std::string> ParseApiKeys(std::string_view text, const std::string& file_name);

// Whether the request carries one of the keys ("Authorization: Bearer KEY"); always true where
// there are none. Takes the same time whichever key, and however much of it, matches.
bool HasApiKey(const HttpRequest& request, const std::vector<std::string>& keys);

// Whether a Host header ("name", "name:port"; empty: none was sent) names this machine by loopback:
// localhost, 127.x.x.x or [::1].
bool IsLoopbackHost(std::string_view host);

// Whether the request's Host is one of loopback or one of `names`. A page of another site whose
// name is made to resolve to loopback (DNS rebinding) comes with that name.
bool HasLocalHost(const HttpRequest& request, const std::vector<std::string>& names);

// Whether a page of another site sends it, by the word of the browser, without `allowed` (as
// below). Such a page cannot read the answer, but it can make the server work.
bool IsFromOtherSite(const HttpRequest& request, const std::string& allowed);

// The headers that let a page of the request's origin read the answer, where `allowed` (an origin,
// "*" for any, "" for none) does.
HttpHeaders CorsHeaders(const HttpRequest& request, const std::string& allowed);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_ACCESS_H_

// JSON on the wire.
#ifndef DENSEFORMER_SERVE_JSON_H_
#define DENSEFORMER_SERVE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace denseformer {

// Keys keep their order, so that the same answer is the same bytes.
using Json = nlohmann::ordered_json;

// Compact; text that is not UTF-8 is written with replacement characters.
std::string ToText(const Json& json);

// What a client sent, for a message about it: the begin of a long text.
std::string Shortened(std::string_view text);

// The body of a request: an object. Throws RequestError (400) that says where it is wrong, also
// where it has more parts than any request needs.
Json ParseBody(std::string_view body);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_JSON_H_

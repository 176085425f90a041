// JSON from files: parsed strictly, with the file's name in every error.
#ifndef DENSEFORMER_IO_STRICT_JSON_H_
#define DENSEFORMER_IO_STRICT_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace denseformer {

struct JsonLimits {
  int depth = 32;            // objects and arrays inside each other
  int64_t values = 1 << 22;  // in all
};

// One JSON value that is the whole of `text`. Throws kCorrupt, beginning with `where`: text that is
// not JSON, a key twice in one object, more than the limits allow, a zero byte.
nlohmann::json ParseJson(std::string_view text, const std::string& where,
                         const JsonLimits& limits = {});

}  // namespace denseformer

#endif  // DENSEFORMER_IO_STRICT_JSON_H_

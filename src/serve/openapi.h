// The interface as an OpenAPI document, from the tables of routes and fields.
#ifndef DENSEFORMER_SERVE_OPENAPI_H_
#define DENSEFORMER_SERVE_OPENAPI_H_

#include <string>
#include <vector>

#include "serve/fields.h"
#include "serve/serve_options.h"

namespace denseformer {

// The fields of the body of a route; empty where it takes none.
std::vector<FieldInfo> RouteFields(std::string_view path);

// Of a server with these options, whose limits are those of the fields.
Json OpenApiDocument(const ServeOptions& options);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_OPENAPI_H_

// The interface as an OpenAPI document, from the tables of routes and fields.
#ifndef DENSEFORMER_SERVE_OPENAPI_H_
#define DENSEFORMER_SERVE_OPENAPI_H_

#include <string>
#include <vector>

#include "serve/fields.h"

namespace denseformer {

// The fields of the body of a route; empty where it takes none.
std::vector<FieldInfo> RouteFields(std::string_view path);

Json OpenApiDocument(const std::string& model_name);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_OPENAPI_H_

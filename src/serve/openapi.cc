#include "serve/openapi.h"

#include <cctype>

#include "base/error.h"
#include "serve/completion_request.h"
#include "serve/depth_endpoint.h"
#include "serve/service.h"
#include "serve/tokenize.h"

namespace denseformer {
namespace {

struct BodyRow {
  std::string_view path;
  std::vector<FieldInfo> (*fields)();
};

constexpr BodyRow kBodies[] = {
    {"/v1/completions", [] { return Infos(CompletionFields()); }},
    {"/v1/chat/completions", [] { return Infos(ChatFields()); }},
    {"/tokenize", TokenizeFields},
    {"/detokenize", DetokenizeFields},
    {"/depth", DepthFields},
};

bool NamesModel(const Route& route) {
  return std::string_view(route.path).find("{id}") != std::string_view::npos;
}

Json Answers(const Route& route, bool keys) {
  const bool body = !RouteFields(route.path).empty(), open = (route.flags & kPublic) != 0;
  Json answers = {{"200", {{"description", "The answer"}}}};
  const auto error = [&](const char* status, const char* text) {
    answers[status] = {
        {"description", text},
        {"content",
         {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  };
  if (body) error("400", "A parameter is wrong: its name is in error.param");
  if (!open && keys) error("401", "The API key is missing or wrong");
  if (!open) error("403", "Asked in the name of another machine, or by a page of another site");
  if (NamesModel(route) || (route.flags & kWork) != 0) error("404", "No such model");
  if (body) error("413", "The body is too large");
  if ((route.flags & kWork) != 0) error("429", "The queue is full: see Retry-After");
  if ((route.flags & kWork) != 0) error("504", "The request took too long");
  if ((route.flags & kModel) != 0) error("503", "Loading, shutting down, or no memory is left");
  if (route.path == std::string_view("/health")) error("503", "Loading or shutting down");
  return answers;
}

Json ErrorSchema() {
  const Json text = {{"type", "string"}}, maybe = {{"type", {"string", "null"}}};
  return {
      {"type", "object"},
      {"properties",
       {{"error",
         {{"type", "object"},
          {"properties", {{"message", text}, {"type", text}, {"param", maybe}, {"code", maybe}}},
          {"required", {"message", "type", "param", "code"}}}}}},
      {"required", {"error"}}};
}

// What this server takes at most, where that is less than the table says.
Json BodySchema(const std::vector<FieldInfo>& fields, const RequestLimits& limits) {
  Json schema = FieldsSchema(fields);
  const auto most = [&](const char* name, int value) {
    Json& known = schema["properties"];
    const auto field = known.find(name);
    if (field == known.end() || !field->contains("maximum")) return;
    if ((*field)["maximum"] > value) (*field)["maximum"] = value;
  };
  if (!schema["properties"].contains("n")) return schema;
  for (const char* name : {"n", "best_of"}) most(name, limits.max_choices);
  for (const char* name : {"logprobs", "top_logprobs"}) most(name, limits.max_logprobs);
  if (limits.max_tokens == 0) return schema;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) most(name, limits.max_tokens);
  return schema;
}

}  // namespace

std::vector<FieldInfo> RouteFields(std::string_view path) {
  for (const BodyRow& row : kBodies) {
    if (row.path == path) return row.fields();
  }
  return {};
}

Json OpenApiDocument(const ServeOptions& options) {
  const bool keys = !options.api_keys.empty();
  Json paths = Json::object();
  for (const Route& route : Routes()) {
    Json operation = {{"summary", route.help}, {"responses", Answers(route, keys)}};
    const std::vector<FieldInfo> fields = RouteFields(route.path);
    if (!fields.empty()) {
      operation["requestBody"] = {
          {"required", true},
          {"content", {{"application/json", {{"schema", BodySchema(fields, options.request)}}}}}};
    }
    if (NamesModel(route)) {
      operation["parameters"] = Json::array({Json{
          {"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    }
    if (keys && (route.flags & kPublic) != 0) operation["security"] = Json::array();
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    paths[route.path][method] = std::move(operation);
  }
  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "denseformer: " + options.model_name}, {"version", "1"}}},
                   {"paths", paths},
                   {"components", {{"schemas", {{"Error", ErrorSchema()}}}}}};
  if (keys) {
    document["components"]["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
    document["security"] = Json::array({Json{{"key", Json::array()}}});
  }
  return document;
}

}  // namespace denseformer

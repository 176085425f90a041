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

Json Answers(const Route& route) {
  const auto answer = [](const char* text) { return Json{{"description", text}}; };
  Json answers = {{"200", answer("The answer")}};
  if (!RouteFields(route.path).empty())
    answers["400"] = answer("A parameter is wrong: its name is in error.param");
  if ((route.flags & kPublic) == 0) answers["401"] = answer("The API key is missing or wrong");
  if ((route.flags & kWork) != 0) answers["429"] = answer("The queue is full: see Retry-After");
  if ((route.flags & kModel) != 0) answers["503"] = answer("Loading or shutting down");
  return answers;
}

}  // namespace

std::vector<FieldInfo> RouteFields(std::string_view path) {
  for (const BodyRow& row : kBodies) {
    if (row.path == path) return row.fields();
  }
  return {};
}

Json OpenApiDocument(const std::string& model_name) {
  Json paths = Json::object();
  for (const Route& route : Routes()) {
    Json operation = {{"summary", route.help}, {"responses", Answers(route)}};
    const std::vector<FieldInfo> fields = RouteFields(route.path);
    if (!fields.empty()) {
      operation["requestBody"] = {
          {"required", true},
          {"content", {{"application/json", {{"schema", FieldsSchema(fields)}}}}}};
    }
    if (std::string_view(route.path).find("{id}") != std::string_view::npos) {
      operation["parameters"] = Json::array({Json{
          {"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    }
    if ((route.flags & kPublic) != 0) operation["security"] = Json::array();
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    paths[route.path][method] = std::move(operation);
  }
  return {
      {"openapi", "3.0.3"},
      {"info", {{"title", "denseformer: " + model_name}, {"version", "1"}}},
      {"paths", paths},
      {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", Json::array({Json{{"key", Json::array()}}})}};
}

}  // namespace denseformer

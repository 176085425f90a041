#include "io/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "io/strict_json.h"

namespace denseformer {

std::string Manifest::ToText() const {
  nlohmann::ordered_json json = {
      {"format", "denseformer-manifest"}, {"version", 1}, {"files", nlohmann::json::object()}};
  for (const auto& [name, entry] : files_) {
    json["files"][name] = {{"size", entry.size}, {"xxh3", entry.hash}};
  }
  return json.dump(2) + "\n";
}

Manifest Manifest::Read(const std::string& directory) {
  const std::string path = directory + "/" + kManifestFile;
  const std::string text = ReadFile(path, 1 << 24);
  Manifest manifest;
  try {
    const nlohmann::json json = ParseJson(text, path);
    for (const auto& [name, entry] : json.at("files").items()) {
      manifest.files_[name] = {entry.at("size"), entry.at("xxh3")};
    }
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not a manifest: {}", path, JsonProblem(error.what()));
  }
  if (manifest.ToText() != text) {
    Throw(ErrorCode::kCorrupt, "{}: not in the form in which it was written: it was altered", path);
  }
  return manifest;
}

void Manifest::WriteFile(const std::string& directory, const std::string& name,
                         const std::function<void(const Sink&)>& write) {
  OutputFile file(directory + "/" + name);
  Hasher hasher;
  write([&](const void* data, size_t size) {
    hasher.Add(data, size);
    file.Write(data, size);
  });
  file.Sync();
  file.Close();
  files_[name] = {file.size(), hasher.Hex()};
}

void Manifest::WriteFile(const std::string& directory, const std::string& name,
                         std::string_view text) {
  WriteFile(directory, name, [&](const Sink& sink) { sink(text.data(), text.size()); });
}

void Manifest::Note(const std::string& name, std::string_view content) {
  files_[name] = {content.size(), HashBytes(content.data(), content.size())};
}

void Manifest::WriteTo(const std::string& directory) const {
  OutputFile file(directory + "/" + kManifestFile);
  file.Write(ToText());
  file.Sync();
  file.Close();
}

void Manifest::Verify(const std::string& directory, bool sizes_only) const {
  for (const auto& [name, entry] : files_) {
    // A name that leads elsewhere can only come from damage.
    if (name.empty() || name.find('/') != std::string::npos) {
      Throw(ErrorCode::kCorrupt, "{}: manifest names '{}'", directory, name);
    }
    const std::string path = directory + "/" + name;
    if (!FileExists(path)) Throw(ErrorCode::kCorrupt, "{}: missing", path);
    if (const uint64_t size = FileSize(path); size != entry.size) {
      Throw(ErrorCode::kCorrupt, "{}: {} bytes, expected {} as in its manifest", path, size,
            entry.size);
    }
    if (sizes_only) continue;
    if (const std::string hash = HashFile(path); hash != entry.hash) {
      Throw(ErrorCode::kCorrupt, "{}: hash {}, expected {} as in its manifest: it was altered",
            path, hash, entry.hash);
    }
  }
}

}  // namespace denseformer

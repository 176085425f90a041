#include "serve/server.h"

#include <sys/resource.h>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr rlim_t kOtherFiles = 64;  // beside the connections

// Each connection is a file descriptor.
void AllowConnections(int connections) {
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOtherFiles;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return;
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted) {
    Throw(ErrorCode::kUsage,
          "max-connections: got {}, but this process may open only {} files; raise the limit "
          "(ulimit -n) or lower the number",
          connections, limit.rlim_max);
  }
  limit.rlim_cur = wanted;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) ThrowErrno(errno, "serve: cannot raise RLIMIT_NOFILE");
}

}  // namespace

Server::Server(const ServeOptions& options) {
  options.engine.Validate();
  AllowConnections(options.http.max_connections);
  http_ = HttpServer::Listen(options.http);
  service_ = std::make_unique<Service>(options, *http_);
}

void Server::Run() {
  http_->Run();
  if (service_->failure()) throw *service_->failure();
}

void Server::Drain() {
  http_->Post([this] { service_->Drain(); });
}

}  // namespace denseformer

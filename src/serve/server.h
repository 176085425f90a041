// denseformer serve: an OpenAI-compatible HTTP server for one model.
//
// One thread does all input and output, one owns the engine. docs/serving.md describes the
// interface.
#ifndef DENSEFORMER_SERVE_SERVER_H_
#define DENSEFORMER_SERVE_SERVER_H_

#include <memory>

#include "serve/http_server.h"
#include "serve/serve_options.h"
#include "serve/service.h"

namespace denseformer {

class Server {
 public:
  // Listens and begins to load the model. Throws Error for options and where the address cannot be
  // had.
  explicit Server(const ServeOptions& options);

  int port() const { return http_->port(); }
  // Serves until a drain is complete. Throws what ended it where that was a failure.
  void Run();
  // From any thread: as a signal would.
  void Drain();

 private:
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Service> service_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_SERVER_H_

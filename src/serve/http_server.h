// An HTTP/1.1 server on one thread: connections, limits, time limits, streams. It knows nothing
// about models.
#ifndef DENSEFORMER_SERVE_HTTP_SERVER_H_
#define DENSEFORMER_SERVE_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "serve/http.h"

namespace denseformer {

struct HttpOptions {
  std::string host = "127.0.0.1";  // address or name to listen on
  int port = 8080;                 // 0: any free one
  int max_connections = 2048;      // more are answered with 503
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 4 << 20;
  size_t max_output_bytes = 256 << 10;  // of a stream, written and not yet taken by the client
  // Of all connections: requests being received, answers not yet taken, and what handlers reserve.
  // Beyond it the body of a request that is not small is answered with 503.
  size_t max_buffered_bytes = 256 << 20;
  // From the first byte of a request to its last; for the first request of a connection also from
  // connecting to its first byte.
  double read_seconds = 30;
  double idle_seconds = 75;   // between two requests of a connection
  double write_seconds = 30;  // in which the client must take some of what it is sent
  // Beyond write_seconds, the client must have taken as much per second of all that it was sent.
  double min_bytes_per_second = 16 << 10;
  // All of these times are measured by it.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  // Listens from now on; throws kIo where the address cannot be had, kUsage where it is none.
  static std::unique_ptr<HttpServer> Listen(const HttpOptions& options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // By the clock of the options.
  virtual std::chrono::steady_clock::time_point now() const = 0;

  // To be set before Run, called by it: a request; a signal that asks to end (SIGINT, SIGTERM),
  // which Run catches only where this is set, and leaves to the system when it ends; ten times per
  // second; the answer to an error that the protocol itself has (malformed, too large, too slow).
  Handler on_request;
  std::function<void(int signal)> on_signal;
  std::function<void()> on_tick;
  std::function<HttpResponse(int status, const std::string& message)> on_error;

  // Serves on the calling thread until Stop.
  virtual void Run() = 0;
  // Ends Run; every connection is closed. On the I/O thread, as all others below.
  virtual void Stop() = 0;
  virtual size_t connections() const = 0;
  // Bytes written and not yet taken by clients.
  virtual size_t unsent_bytes() const = 0;
  // The same, bytes of requests being received and reserved ones: what max_buffered_bytes bounds.
  virtual size_t buffered_bytes() const = 0;
  // Counts bytes that a handler may come to hold for its answer. False, and nothing is counted,
  // where all buffered bytes together would be too many.
  virtual bool Reserve(size_t bytes) = 0;
  virtual void Release(size_t bytes) = 0;
  virtual size_t reserved_bytes() const = 0;

  // Runs `work` on the I/O thread, in order. From any thread.
  virtual void Post(std::function<void()> work) = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_HTTP_SERVER_H_

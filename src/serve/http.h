// HTTP as the rest of the server sees it: a request, and the exchange that answers it.
//
// Everything here happens on the I/O thread.
#ifndef DENSEFORMER_SERVE_HTTP_H_
#define DENSEFORMER_SERVE_HTTP_H_

#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace denseformer {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;     // TargetPath
  HttpHeaders headers;  // names in lower case
  std::string body;

  // The value of a header, its name in lower case; "" where it is absent.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers = {};  // further ones
  // Of a stream: bytes that mean nothing in it, which must outlive the exchange. They are written
  // to a client that has ended its side of the connection: if it is gone, its system says so.
  std::string_view filler = {};
};

// The path that the target of a request names: without the query, without scheme and host (which
// clients of a proxy send), and with "%20" as the byte that it stands for.
std::string TargetPath(std::string_view target);

// The name of a status: "Not Found".
const char* HttpStatusName(int status);

// A time as headers write it: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate(std::time_t time);

// Host and port as URLs write them: an IPv6 address in brackets.
std::string HttpAuthority(std::string_view host, int port);

// Answers one request: by Send, or by StartStream, any number of Write, and End. Where the client
// is gone, all of them do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Its body is there only until the handler of the request returns.
  virtual const HttpRequest& request() const = 0;
  virtual void Send(HttpResponse response) = 0;
  // The body of `response` is the begin of the stream.
  virtual void StartStream(HttpResponse response) = 0;
  // A client that does not read as fast as it is written to is cut off where the buffer of its
  // connection is full. Bytes that come `at_once` (an echoed prompt) do not fill it: no client
  // could have read them before.
  virtual void Write(std::string_view bytes, bool at_once = false) = 0;
  virtual void End() = 0;
  // Called once, from the event loop, where the client is gone before the answer is complete. One
  // that has only ended its own side (shutdown(SHUT_WR)) is not gone.
  virtual void OnClose(std::function<void()> callback) = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_HTTP_H_

// A small HTTP/1.1 client on a blocking socket, for the load generator and the tests.
#ifndef DENSEFORMER_SERVE_CLIENT_H_
#define DENSEFORMER_SERVE_CLIENT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace denseformer {

class HttpClient {
 public:
  struct Answer {
    int status = 0;
    HttpHeaders headers;  // names in lower case
    std::string body;

    std::string_view Header(std::string_view name) const;
  };

  // Connects to a numeric address. Throws kIo; so do the others below where the server is gone or
  // silent for `seconds`, and for an answer that is not HTTP.
  HttpClient(const std::string& address, int port, double seconds = 20);
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&& other) noexcept;

  void Send(std::string_view bytes);
  void SendRequest(std::string_view method, std::string_view path, std::string_view body = "",
                   const HttpHeaders& headers = {});

  // Ends the sending direction: nothing more is asked, answers still come.
  void EndSending();

  // Status and headers of the next answer; its body comes by ReceivePiece.
  Answer ReceiveHead();
  // The next piece of the body (a chunk, where it is chunked); "" at its end.
  std::string ReceivePiece();
  // All of the next answer.
  Answer Receive();
  Answer Call(std::string_view method, std::string_view path, std::string_view body = "",
              const HttpHeaders& headers = {});

  // The next event of a stream without "data: ", comments left out; "" at its end.
  std::string ReceiveEvent();
  // Whether a part of the answer is received and not taken.
  bool buffered() const { return !buffer_.empty() || !events_.empty(); }
  // For poll(); the client keeps it.
  int descriptor() const { return socket_; }
  // Whether the server closed the connection; waits for it.
  bool ReceiveEnd();
  void Close();

 private:
  enum class Framing { kLength, kChunked, kToEnd };

  bool Fill();  // false at the end
  void Need(size_t bytes);
  std::string TakeLine();

  int socket_ = -1;
  std::string buffer_;
  std::string events_;
  Framing framing_ = Framing::kLength;
  size_t rest_ = 0;    // of a body with a length
  bool ended_ = true;  // the body is read
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_CLIENT_H_

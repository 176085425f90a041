// One connection of the server: reads requests one after the other and writes the answers. The only
// users of Boost here are this file and http_server.cc.
//
// There is always one read under way while a request is in work, so that a client that leaves is
// noticed at once; one that sends too much ahead of its answer is cut off. The end of what a client
// sends does not say whether it has closed its socket or waits for the answer (shutdown(SHUT_WR)):
// some bytes that mean nothing are written to it, and the system of one that is gone resets the
// connection.
#ifndef DENSEFORMER_SERVE_HTTP_CONNECTION_H_
#define DENSEFORMER_SERVE_HTTP_CONNECTION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/http_server.h"

namespace denseformer {

class HttpExchange;

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;
  using Socket = boost::asio::ip::tcp::socket;

  // The references must outlive it; `closed` is called once. `buffered` is a sum over connections,
  // to which this one adds the bytes that it holds.
  HttpConnection(Socket socket, const HttpServer& server, const HttpOptions& options,
                 size_t& buffered, std::function<void(HttpConnection&)> closed);

  void Start();
  // Answers with an error and closes, without reading a request.
  void Refuse(int status, const std::string& message);
  // Closes what exceeds its time.
  void CheckTime(Clock::time_point now);
  // Closes at once; a request in work hears of it.
  void Abort();
  size_t unsent_bytes() const { return sending_.size() - sent_ + next_.size(); }

 private:
  friend class HttpExchange;
  enum class State { kReading, kAnswering, kClosing, kClosed };

  void Read();
  void OnRead(const boost::system::error_code& error, size_t count);
  void OnEnd();
  void Parse();
  void Dispatch();
  bool CheckHead();
  void CountBuffers();
  void Fail(const boost::system::error_code& error);
  void SendHead(const HttpResponse& response, std::optional<size_t> length);
  void Queue(std::string_view bytes);
  void QueueBody(std::string body);
  void QueuePiece(std::string_view bytes);
  void Flush();
  bool TooSlow(Clock::time_point now) const;
  void OnWrite(const boost::system::error_code& error, size_t count);
  void Answered();
  void CloseGently();
  void Close();

  Socket socket_;
  const HttpServer& server_;
  const HttpOptions& options_;
  size_t& buffered_;
  size_t counted_ = 0;  // its part of buffered_
  std::function<void(HttpConnection&)> closed_;
  State state_ = State::kReading;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::shared_ptr<HttpExchange> exchange_;
  bool reading_ = false, begun_ = false, head_read_ = false;
  bool head_ = false, chunked_ = false, keep_alive_ = false;
  bool old_ = false;                        // HTTP/1.0
  bool ended_ = false;                      // the client sends nothing more
  bool complete_ = false;                   // the whole answer is queued
  bool answered_ = false;                   // at least one request
  std::optional<std::string_view> filler_;  // of the stream that has begun
  std::string sending_, next_;
  size_t sent_ = 0;
  size_t at_once_ = 0;  // of the unsent bytes, at most so many came at once
  bool writing_ = false;
  bool behind_ = false;  // something is unsent, since behind_since_
  size_t taken_ = 0;     // by the client since then
  Clock::time_point read_since_, write_since_, behind_since_, closing_since_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_HTTP_CONNECTION_H_

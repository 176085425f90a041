#include "serve/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <ctime>
#include <utility>

namespace denseformer {
namespace beast = boost::beast;

namespace {

constexpr size_t kReadAhead = 64 << 10;  // that a client may send before its answer is complete
constexpr double kClosingSeconds = 2;    // for a client to read the last answer
constexpr int kSendBuffer = 64 << 10;
constexpr size_t kSmallBody = 16 << 10;  // a body that is received however much others hold
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr size_t kSmallRead = 2 << 10, kLargeRead = 64 << 10;

double SecondsSince(HttpConnection::Clock::time_point then, HttpConnection::Clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

// Holds the connection weakly: an answer may come long after the client is gone.
class HttpExchange : public Exchange {
 public:
  HttpExchange(std::weak_ptr<HttpConnection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }

  void Send(HttpResponse response) override {
    const std::shared_ptr<HttpConnection> c = Current();
    if (!c) return;
    c->chunked_ = false;
    c->SendHead(response, response.body.size());
    if (!c->head_) c->QueueBody(std::move(response.body));
    c->complete_ = true;
    c->Flush();
  }

  void StartStream(HttpResponse response) override {
    const std::shared_ptr<HttpConnection> c = Current();
    if (!c) return;
    c->SendHead(response, std::nullopt);
    c->filler_ = response.filler;
    c->Flush();
    Write(response.body, /*at_once=*/false);
  }

  void Write(std::string_view bytes, bool at_once) override {
    const std::shared_ptr<HttpConnection> c = Current();
    if (!c || bytes.empty()) return;
    if (c->unsent_bytes() > c->options_.max_output_bytes + c->at_once_) return c->Abort();
    c->QueuePiece(bytes);
    if (at_once && !c->head_) c->at_once_ += bytes.size();
    c->Flush();
  }

  void End() override {
    const std::shared_ptr<HttpConnection> c = Current();
    if (!c) return;
    if (c->chunked_ && !c->head_) c->Queue("0\r\n\r\n");
    c->complete_ = true;
    c->Flush();
  }

  void OnClose(std::function<void()> callback) override { on_close_ = std::move(callback); }

  void FreeBody() { std::string().swap(request_.body); }  // assigning would keep the memory

  std::function<void()> TakeOnClose() { return std::exchange(on_close_, {}); }

 private:
  std::shared_ptr<HttpConnection> Current() const {
    std::shared_ptr<HttpConnection> c = connection_.lock();
    return c && c->exchange_.get() == this && !c->complete_ ? c : nullptr;
  }

  std::weak_ptr<HttpConnection> connection_;
  HttpRequest request_;
  std::function<void()> on_close_;
};

HttpConnection::HttpConnection(Socket socket, const HttpServer& server, const HttpOptions& options,
                               size_t& buffered, std::function<void(HttpConnection&)> closed)
    : socket_(std::move(socket)),
      server_(server),
      options_(options),
      buffered_(buffered),
      closed_(std::move(closed)),
      read_since_(server.now()) {}

void HttpConnection::Start() {
  boost::system::error_code ignored;
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  // The system would otherwise hold megabytes for a client that does not read.
  socket_.set_option(Socket::send_buffer_size(kSendBuffer), ignored);
  head_read_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser_->body_limit(options_.max_body_bytes);
  parser_->eager(true);
  Read();
}

void HttpConnection::Read() {
  if (reading_ || ended_ || state_ == State::kClosed) return;
  if (state_ == State::kAnswering && buffer_.size() >= kReadAhead) {
    // Without a read nobody would notice that the client leaves. What is left to send ends by time.
    if (!complete_) Abort();
    return;
  }
  reading_ = true;
  const bool in_body = state_ == State::kReading && parser_ && parser_->is_header_done();
  socket_.async_read_some(
      buffer_.prepare(in_body ? kLargeRead : kSmallRead),
      [self = shared_from_this()](const auto& error, size_t count) { self->OnRead(error, count); });
}

void HttpConnection::OnRead(const boost::system::error_code& error, size_t count) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error == boost::asio::error::eof) {
    ended_ = true;
    return OnEnd();
  }
  if (error) return Abort();
  buffer_.commit(count);
  if (state_ == State::kClosing) buffer_.consume(buffer_.size());
  if (state_ == State::kReading) Parse();
  CountBuffers();
  Read();
}

// What the client has sent before is answered to its end.
void HttpConnection::OnEnd() {
  if (state_ == State::kReading) Parse();
  if (state_ == State::kReading || state_ == State::kClosing) return Abort();
  if (state_ != State::kAnswering || complete_) return;
  if (filler_) {
    QueuePiece(*filler_);
  } else if (!old_) {
    Queue(kContinue);  // which a client must pass over at any time
  } else {
    return Abort();  // HTTP/1.0 has nothing of the kind
  }
  socket_.async_wait(Socket::wait_error, [self = shared_from_this()](const auto&) {
    if (self->state_ == State::kAnswering) self->Abort();
  });
  Flush();
}

void HttpConnection::Parse() {
  if (buffer_.size() > 0 && !begun_) {
    begun_ = true;
    read_since_ = server_.now();
  }
  while (state_ == State::kReading && buffer_.size() > 0) {
    boost::system::error_code error;
    const size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (parser_->is_header_done() && !std::exchange(head_read_, true) && !CheckHead()) return;
    if (error && error != beast::http::error::need_more) return Fail(error);
    if (parser_->is_done()) return Dispatch();
    CountBuffers();
    if (buffered_ > options_.max_buffered_bytes && parser_->get().body().size() > kSmallBody) {
      return Refuse(503, "the server holds as much of other requests as it may; try again later");
    }
    if (used == 0) break;
  }
  // Bodies are taken as they come. What is left is the line of a chunk or trailers, of any length.
  if (state_ == State::kReading && head_read_ && buffer_.size() > options_.max_header_bytes) {
    Refuse(431, fmt::format("chunk: extensions or trailers larger than {} bytes",
                            options_.max_header_bytes));
  }
}

// What the parser lets pass. False where the request is refused.
bool HttpConnection::CheckHead() {
  const auto& message = parser_->get();
  const auto text = [&](beast::http::field name) {
    const beast::string_view value = message[name];
    return Lower(std::string_view(value.data(), value.size()));
  };
  // The parser takes a body in another coding for the next request: what a proxy forwards as one
  // would be two here.
  const size_t codings = message.count(beast::http::field::transfer_encoding);
  const std::string coding = text(beast::http::field::transfer_encoding);
  if (codings > 0 && (codings > 1 || coding != "chunked" || message.version() < 11)) {
    Refuse(501,
           fmt::format("Transfer-Encoding: got '{}' in HTTP/{}, expected 'chunked' in HTTP/1.1",
                       coding, message.version() < 11 ? "1.0" : "1.1"));
    return false;
  }
  if (message.count(beast::http::field::host) > 1) {
    Refuse(400, "Host: got more than one");
    return false;
  }
  if (!parser_->is_done() && message.version() >= 11 &&
      text(beast::http::field::expect) == "100-continue") {
    Queue(kContinue);
    Flush();
  }
  return true;
}

void HttpConnection::CountBuffers() {
  size_t held = 0;
  if (state_ != State::kClosed) held = unsent_bytes() + buffer_.size();
  if (state_ == State::kReading && parser_) held += parser_->get().body().size();
  buffered_ += held - counted_;
  counted_ = held;
}

void HttpConnection::Fail(const boost::system::error_code& error) {
  if (error == beast::http::error::body_limit) {
    Refuse(413, fmt::format("body: larger than {} bytes", options_.max_body_bytes));
  } else if (error == beast::http::error::header_limit) {
    Refuse(431, fmt::format("headers: larger than {} bytes", options_.max_header_bytes));
  } else {
    Refuse(400, fmt::format("not an HTTP request: {}", error.message()));
  }
}

void HttpConnection::Refuse(int status, const std::string& message) {
  state_ = State::kAnswering;
  parser_.reset();
  keep_alive_ = chunked_ = head_ = false;
  const HttpResponse response = server_.on_error(status, message);
  SendHead(response, response.body.size());
  Queue(response.body);
  complete_ = true;
  Flush();
}

void HttpConnection::Dispatch() {
  state_ = State::kAnswering;
  begun_ = complete_ = false;
  auto message = parser_->release();
  HttpRequest request;
  const auto text = [](beast::string_view view) { return std::string(view.data(), view.size()); };
  request.method = text(message.method_string());
  request.path = TargetPath(text(message.target()));
  for (const auto& field : message) {
    request.headers.emplace_back(Lower(text(field.name_string())), text(field.value()));
  }
  request.body = std::move(message.body());
  keep_alive_ = message.keep_alive();
  old_ = message.version() < 11;
  chunked_ = !old_;
  head_ = request.method == "HEAD";
  if (head_) request.method = "GET";
  parser_.reset();
  if (buffer_.size() == 0) buffer_ = {};  // a large request must not leave its memory behind
  CountBuffers();
  const auto exchange = std::make_shared<HttpExchange>(weak_from_this(), std::move(request));
  exchange_ = exchange;
  server_.on_request(exchange);
  exchange->FreeBody();  // the request may wait for long
}

void HttpConnection::SendHead(const HttpResponse& response, std::optional<size_t> length) {
  if (!length && !chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the stream is the end
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status,
                                 HttpStatusName(response.status), HttpDate(std::time(nullptr)));
  if (!response.content_type.empty()) {
    head += fmt::format("Content-Type: {}\r\n", response.content_type);
  }
  if (length && response.status != 204) {
    head += fmt::format("Content-Length: {}\r\n", *length);
  } else if (chunked_) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  // Clients of HTTP/1.0 must be told what is usual since.
  if (!keep_alive_) head += "Connection: close\r\n";
  if (keep_alive_ && old_) head += "Connection: keep-alive\r\n";
  head += "\r\n";
  Queue(head);
}

void HttpConnection::Queue(std::string_view bytes) {
  if (state_ == State::kClosed) return;
  next_ += bytes;
  CountBuffers();
}

// A long one is not copied: it goes into a buffer of its own, after the head.
void HttpConnection::QueueBody(std::string body) {
  if (state_ != State::kClosed && body.size() > kLargeRead) Flush();
  if (!next_.empty() || state_ == State::kClosed) return Queue(body);
  next_ = std::move(body);
  CountBuffers();
}

void HttpConnection::QueuePiece(std::string_view bytes) {
  if (head_ || bytes.empty()) return;
  if (chunked_) Queue(fmt::format("{:x}\r\n", bytes.size()));
  Queue(bytes);
  if (chunked_) Queue("\r\n");
}

void HttpConnection::Flush() {
  if (writing_ || state_ == State::kClosed) return;
  if (sent_ == sending_.size()) {
    sending_ = std::exchange(next_, {});
    sent_ = 0;
  }
  if (sending_.empty()) {
    behind_ = false;
    if (complete_) Answered();
    return;
  }
  writing_ = true;
  if (!std::exchange(behind_, true)) {
    behind_since_ = server_.now();
    taken_ = 0;
  }
  if (sent_ == 0) write_since_ = server_.now();
  socket_.async_write_some(boost::asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](const auto& error, size_t count) {
                             self->OnWrite(error, count);
                           });
}

void HttpConnection::OnWrite(const boost::system::error_code& error, size_t count) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return Abort();
  sent_ += count;
  taken_ += count;
  at_once_ = std::min(at_once_, unsent_bytes());
  CountBuffers();
  write_since_ = server_.now();
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
  }
  Flush();
}

void HttpConnection::Answered() {
  complete_ = false;
  answered_ = true;
  exchange_.reset();
  filler_.reset();
  if (!keep_alive_) return CloseGently();
  state_ = State::kReading;
  read_since_ = server_.now();
  Start();
  // From the event loop: a client that sends many requests at once must not deepen the stack.
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->ended_) return self->OnEnd();
    if (self->state_ == State::kReading) self->Parse();
  });
}

// Ends the sending direction and waits for the client to end its own, so that what it still sends
// does not make the system discard the answer.
void HttpConnection::CloseGently() {
  if (ended_) return Close();
  state_ = State::kClosing;
  closing_since_ = server_.now();
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  buffer_.consume(buffer_.size());
  Read();
}

// Nothing is taken for long, or so little that a large answer would be held for hours.
bool HttpConnection::TooSlow(Clock::time_point now) const {
  if (!writing_) return false;
  if (SecondsSince(write_since_, now) > options_.write_seconds) return true;
  const double late = SecondsSince(behind_since_, now) - options_.write_seconds;
  return late * options_.min_bytes_per_second > static_cast<double>(taken_);
}

void HttpConnection::CheckTime(Clock::time_point now) {
  if (TooSlow(now)) return Abort();
  if (state_ == State::kClosing && SecondsSince(closing_since_, now) > kClosingSeconds) {
    return Close();
  }
  if (state_ != State::kReading) return;
  const double seconds = SecondsSince(read_since_, now);
  // A client has connected in order to ask: the time of its first request runs from there.
  const double silence = answered_ ? options_.idle_seconds : options_.read_seconds;
  if (!begun_ && seconds > silence) return Close();
  if (begun_ && seconds > options_.read_seconds) {
    Refuse(408, fmt::format("the request took longer than {} seconds", options_.read_seconds));
  }
}

void HttpConnection::Abort() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<HttpExchange> exchange = std::move(exchange_);
  const bool unanswered = state_ == State::kAnswering && !complete_;
  Close();
  if (!exchange || !unanswered) return;
  // Not from here: the one who writes may be the one to be told.
  boost::asio::post(socket_.get_executor(), [exchange] {
    if (const std::function<void()> callback = exchange->TakeOnClose()) callback();
  });
}

void HttpConnection::Close() {
  state_ = State::kClosed;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  boost::system::error_code ignored;
  socket_.close(ignored);
  next_ = {};
  exchange_.reset();
  CountBuffers();
  closed_(*this);
}

}  // namespace denseformer

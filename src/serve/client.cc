#include "serve/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMostLine = 64 << 10;

size_t ParseSize(std::string_view text, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    Throw(ErrorCode::kIo, "http client: got '{}', expected a length", text);
  }
  return value;
}

}  // namespace

std::string_view HttpClient::Answer::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

HttpClient::HttpClient(const std::string& address, int port, double seconds) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) {
    Throw(ErrorCode::kUsage, "http client: got '{}', expected a numeric address", address);
  }
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) ThrowErrno(errno, "http client: no socket");
  timeval time{};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_usec = static_cast<suseconds_t>((seconds - std::floor(seconds)) * 1e6);
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    const int error = errno;
    Close();
    ThrowErrno(error, "http client: cannot connect to {} port {}", address, port);
  }
}

HttpClient::~HttpClient() { Close(); }

HttpClient::HttpClient(HttpClient&& other) noexcept { *this = std::move(other); }

HttpClient& HttpClient::operator=(HttpClient&& other) noexcept {
  std::swap(socket_, other.socket_);
  buffer_ = std::move(other.buffer_);
  events_ = std::move(other.events_);
  framing_ = other.framing_;
  rest_ = other.rest_;
  ended_ = other.ended_;
  return *this;
}

void HttpClient::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) ThrowErrno(errno, "http client: cannot send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void HttpClient::SendRequest(std::string_view method, std::string_view path, std::string_view body,
                             const HttpHeaders& headers) {
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", method, path);
  for (const auto& [name, value] : headers) request += fmt::format("{}: {}\r\n", name, value);
  if (!body.empty() || method == "POST") {
    request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  Send(request + "\r\n" + std::string(body));
}

void HttpClient::EndSending() {
  if (shutdown(socket_, SHUT_WR) != 0) ThrowErrno(errno, "http client: cannot end the request");
}

bool HttpClient::Fill() {
  char bytes[kReadBytes];
  const ssize_t count = recv(socket_, bytes, sizeof(bytes), 0);
  if (count < 0) ThrowErrno(errno, "http client: no answer");
  buffer_.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

void HttpClient::Need(size_t bytes) {
  while (buffer_.size() < bytes) {
    if (!Fill()) Throw(ErrorCode::kIo, "http client: the connection ended within an answer");
  }
}

std::string HttpClient::TakeLine() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (buffer_.size() > kMostLine) Throw(ErrorCode::kIo, "http client: a line without end");
    Need(buffer_.size() + 1);
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

HttpClient::Answer HttpClient::ReceiveHead() {
  Answer answer;
  const std::string status = TakeLine();
  if (!status.starts_with("HTTP/1.1 ") || status.size() < 12) {
    Throw(ErrorCode::kIo, "http client: got '{}', expected a status", status);
  }
  answer.status = static_cast<int>(ParseSize(std::string_view(status).substr(9, 3), 10));
  framing_ = Framing::kToEnd;
  for (std::string line; !(line = TakeLine()).empty();) {
    const size_t colon = std::min(line.find(':'), line.size());
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string value(Trim(std::string_view(line).substr(std::min(colon + 1, line.size()))));
    if (name == "content-length") {
      framing_ = Framing::kLength;
      rest_ = ParseSize(value, 10);
    } else if (name == "transfer-encoding" && value == "chunked") {
      framing_ = Framing::kChunked;
    }
    answer.headers.emplace_back(std::move(name), std::move(value));
  }
  if (answer.status == 100) return ReceiveHead();
  ended_ = answer.status == 204 || (framing_ == Framing::kLength && rest_ == 0);
  events_.clear();
  return answer;
}

std::string HttpClient::ReceivePiece() {
  if (ended_) return "";
  if (framing_ == Framing::kChunked) {
    const size_t size = ParseSize(TakeLine(), 16);
    Need(size + 2);
    std::string piece = buffer_.substr(0, size);
    buffer_.erase(0, size + 2);
    ended_ = size == 0;
    return piece;
  }
  if (buffer_.empty() && !Fill()) {
    if (framing_ == Framing::kLength) Need(1);
    ended_ = true;
    return "";
  }
  const size_t size =
      framing_ == Framing::kLength ? std::min(rest_, buffer_.size()) : buffer_.size();
  std::string piece = buffer_.substr(0, size);
  buffer_.erase(0, size);
  rest_ -= framing_ == Framing::kLength ? size : 0;
  ended_ = framing_ == Framing::kLength && rest_ == 0;
  return piece;
}

HttpClient::Answer HttpClient::Receive() {
  Answer answer = ReceiveHead();
  for (std::string piece; !(piece = ReceivePiece()).empty();) answer.body += piece;
  return answer;
}

HttpClient::Answer HttpClient::Call(std::string_view method, std::string_view path,
                                    std::string_view body, const HttpHeaders& headers) {
  SendRequest(method, path, body, headers);
  return Receive();
}

std::string HttpClient::ReceiveEvent() {
  size_t end;
  while ((end = events_.find("\n\n")) == std::string::npos) {
    const std::string piece = ReceivePiece();
    if (piece.empty()) return "";
    events_ += piece;
  }
  const std::string event = events_.substr(0, end);
  events_.erase(0, end + 2);
  if (event.starts_with(':')) return ReceiveEvent();
  if (!event.starts_with("data: ")) Throw(ErrorCode::kIo, "http client: event '{}'", event);
  return event.substr(6);
}

bool HttpClient::ReceiveEnd() {
  try {
    while (Fill()) buffer_.clear();
    return true;
  } catch (const Error&) {
    return errno == ECONNRESET;
  }
}

}  // namespace denseformer

#include "serve/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "serve/http_connection.h"

namespace denseformer {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int kBacklog = 1024;

class AsioServer : public HttpServer {
 public:
  explicit AsioServer(const HttpOptions& options)
      : options_(options), acceptor_(io_), tick_(io_), signals_(io_) {}

  // The connections' handlers must not outlive them.
  ~AsioServer() override { CloseAll(); }

  void Bind() {
    boost::system::error_code error;
    const auto found =
        tcp::resolver(io_).resolve(options_.host, std::to_string(options_.port), error);
    if (error || found.empty()) {
      Throw(ErrorCode::kUsage, "host: got '{}', expected an address or name of this machine ({})",
            options_.host, error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(kBacklog, error);
    if (error) {
      Throw(ErrorCode::kIo, "cannot listen on {} port {}: {}; choose another --port", options_.host,
            options_.port, error.message());
    }
  }

  int port() const override { return acceptor_.local_endpoint().port(); }
  std::chrono::steady_clock::time_point now() const override { return options_.now(); }

  void Run() override {
    if (on_signal) {
      signals_.add(SIGINT);
      signals_.add(SIGTERM);
      WaitForSignal();
    }
    Accept();
    Tick();
    io_.run();
    boost::system::error_code ignored;
    signals_.clear(ignored);
    CloseAll();
  }

  void Stop() override { io_.stop(); }
  size_t connections() const override { return connections_.size(); }

  size_t unsent_bytes() const override {
    size_t bytes = 0;
    for (const auto& connection : connections_) bytes += connection->unsent_bytes();
    return bytes;
  }

  size_t buffered_bytes() const override { return buffered_; }

  bool Reserve(size_t bytes) override {
    if (buffered_ > options_.max_buffered_bytes ||
        bytes > options_.max_buffered_bytes - buffered_) {
      return false;
    }
    buffered_ += bytes;
    reserved_ += bytes;
    return true;
  }

  void Release(size_t bytes) override {
    buffered_ -= bytes;
    reserved_ -= bytes;
  }

  size_t reserved_bytes() const override { return reserved_; }

  void Post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

 private:
  void WaitForSignal() {
    signals_.async_wait([this](const auto& error, int signal) {
      if (error) return;
      on_signal(signal);
      WaitForSignal();
    });
  }

  void Accept() {
    acceptor_.async_accept([this](const auto& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {  // no file descriptors are left, most likely: again at the next tick
        accept_again_ = true;
        return;
      }
      auto connection = std::make_shared<HttpConnection>(
          std::move(socket), *this, options_, buffered_,
          [this](HttpConnection& closed) { connections_.erase(closed.shared_from_this()); });
      const bool full = connections_.size() >= static_cast<size_t>(options_.max_connections);
      connections_.insert(connection);
      if (full) {
        connection->Refuse(503, fmt::format("more than {} connections", options_.max_connections));
      } else {
        connection->Start();
      }
      Accept();
    });
  }

  void Tick() {
    tick_.expires_after(kTick);
    tick_.async_wait([this](const auto& error) {
      if (error) return;
      // A copy: closing takes them out.
      const std::vector<std::shared_ptr<HttpConnection>> all(connections_.begin(),
                                                             connections_.end());
      const auto time = now();
      for (const auto& connection : all) connection->CheckTime(time);
      if (std::exchange(accept_again_, false)) Accept();
      if (on_tick) on_tick();
      Tick();
    });
  }

  void CloseAll() {
    const auto all = std::exchange(connections_, {});
    for (const auto& connection : all) connection->Abort();
  }

  HttpOptions options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer tick_;
  asio::signal_set signals_;
  bool accept_again_ = false;
  size_t buffered_ = 0;  // counted by the connections, and reserved
  size_t reserved_ = 0;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections_;
};

}  // namespace

std::unique_ptr<HttpServer> HttpServer::Listen(const HttpOptions& options) {
  auto server = std::make_unique<AsioServer>(options);
  server->Bind();
  return server;
}

}  // namespace denseformer

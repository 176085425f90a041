// Ranks as threads of one process, for tests of what ranks do together.
#ifndef DENSEFORMER_DIST_TESTING_H_
#define DENSEFORMER_DIST_TESTING_H_

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dist/communicator.h"

namespace denseformer {

// All messages under way between the threads. The n-th receive of a (from, to, tag) gets the n-th
// message that was sent there.
class Mailroom {
 public:
  using Route = std::tuple<int, int, int>;  // from, to, tag

  void Send(const Route& route, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    letters_[{route, sent_[route]++}] = {bytes.begin(), bytes.end()};
    arrived_.notify_all();
  }

  int64_t NextReceive(const Route& route) {
    const std::lock_guard lock(mutex_);
    return received_[route]++;
  }

  // False where it has not come and `wait` is not set. Throws where a rank has failed meanwhile.
  bool Take(const Route& route, int64_t number, std::span<std::byte> bytes, bool wait) {
    std::unique_lock lock(mutex_);
    const auto key = std::make_pair(route, number);
    if (wait) arrived_.wait(lock, [&] { return failed_ || letters_.count(key) > 0; });
    const auto found = letters_.find(key);
    if (found == letters_.end()) {
      if (failed_) Throw(ErrorCode::kIo, "another rank has failed");
      return false;
    }
    DF_CHECK(found->second.size() == bytes.size());
    std::copy(found->second.begin(), found->second.end(), bytes.begin());
    letters_.erase(found);
    return true;
  }

  void Fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    arrived_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<Route, int64_t>, std::vector<std::byte>> letters_;
  std::map<Route, int64_t> sent_, received_;
  bool failed_ = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(Mailroom& mail, int rank, int size) : Communicator(rank, size), mail_(mail) {}

 private:
  class Letter : public Message {
   public:
    Letter(Mailroom& mail, const Mailroom::Route& route, std::span<std::byte> bytes)
        : mail_(mail), route_(route), bytes_(bytes), number_(mail.NextReceive(route)) {}
    bool Done() override { return done_ = done_ || mail_.Take(route_, number_, bytes_, false); }
    void Wait() override { done_ = done_ || mail_.Take(route_, number_, bytes_, true); }

   private:
    Mailroom& mail_;
    Mailroom::Route route_;
    std::span<std::byte> bytes_;
    int64_t number_;
    bool done_ = false;
  };
  struct Sent : Message {
    bool Done() override { return true; }
    void Wait() override {}
  };

  std::unique_ptr<Message> DoSend(int to, int tag, std::span<const std::byte> bytes) override {
    mail_.Send({rank(), to, tag}, bytes);
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Message> DoReceive(int from, int tag, std::span<std::byte> bytes) override {
    return std::make_unique<Letter>(mail_, Mailroom::Route{from, rank(), tag}, bytes);
  }

  Mailroom& mail_;
};

// Runs work(communicator) on `size` threads as ranks and returns when all have ended. Rethrows the
// first exception; the other ranks then fail where they wait.
inline void RunRanks(int size, const std::function<void(Communicator&)>& work) {
  Mailroom mail;
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(mail, rank, size);
      try {
        work(communicator);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        mail.Fail();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace denseformer

#endif  // DENSEFORMER_DIST_TESTING_H_

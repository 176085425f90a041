#include "serve/engine_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "infer/testing.h"

namespace denseformer {
namespace {

// Counts what a thread does; everything is written by the engine's thread.
struct Log {
  std::string order;  // s: a step that brought events, c: a call
  int finished = 0;
  uint64_t steps = 0;
  std::promise<uint64_t> all;  // steps so far, once `wanted` sequences are finished
  int wanted = 0;
};

class EngineThreadTest : public ::testing::Test {
 protected:
  void Start(double gather_seconds) {
    EngineThread::Callbacks callbacks;
    callbacks.load = [] { return testing::ByteModel("1x1", 48); };
    callbacks.ready = [](const LanguageModel&) {};
    callbacks.failed = [](const Error& error) { FAIL() << error.what(); };
    callbacks.update = [this](const EngineUpdate& update) {
      thread_->Acknowledge();
      if (!update.events.empty()) log_.order += 's';
      for (const EngineUpdate::Event& event : update.events)
        log_.finished += event.event.finish ? 1 : 0;
      log_.steps = update.stats.steps;
      if (log_.wanted > 0 && log_.finished == log_.wanted) {
        log_.wanted = 0;
        log_.all.set_value(log_.steps);
      }
    };
    thread_.reset();
    log_ = {};
    thread_ = std::make_unique<EngineThread>(EngineOptions(), std::move(callbacks), gather_seconds);
  }

  void Submit(int tokens) {
    SequenceRequest request;
    request.prompt = {'a', 'b'};
    request.max_tokens = tokens;
    request.stop_at_end_of_text = false;
    thread_->Submit(next_key_++, std::move(request));
  }

  // Keeps the engine busy until the promise is set, and asks for the steps of `wanted` sequences.
  std::future<uint64_t> Block(std::promise<void>& go, int wanted) {
    log_.all = {};
    std::future<uint64_t> steps = log_.all.get_future();
    const auto blocked = std::make_shared<std::promise<void>>();
    thread_->Call([this, blocked, wanted, wait = go.get_future().share()] {
      log_.wanted = log_.finished + wanted;
      blocked->set_value();
      wait.wait();
    });
    blocked->get_future().wait();
    return steps;
  }

  Log log_;
  SequenceKey next_key_ = 1;
  std::unique_ptr<EngineThread> thread_;  // last: it writes the log
};

TEST_F(EngineThreadTest, SequencesThatEndTogetherBeginTogetherAgain) {
  Start(/*gather_seconds=*/1000);
  std::promise<void> go;
  std::future<uint64_t> first = Block(go, 4);
  for (int n = 0; n < 4; ++n) Submit(5);
  go.set_value();
  const uint64_t wave = first.get();
  std::promise<void> at_once;
  std::future<uint64_t> second = Block(at_once, 4);
  at_once.set_value();
  for (int n = 0; n < 4; ++n) {
    Submit(5);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(second.get(), 2 * wave);
}

TEST_F(EngineThreadTest, TheFewThatAreLeftWaitForThoseThatFollow) {
  Start(/*gather_seconds=*/1000);
  std::promise<void> go;
  std::future<uint64_t> three = Block(go, 3);
  for (int n = 0; n < 3; ++n) Submit(5);
  Submit(20);
  go.set_value();
  const uint64_t wave = three.get();
  log_.all = {};
  std::future<uint64_t> rest = log_.all.get_future();
  log_.wanted = log_.finished + 4;  // the engine's thread waits
  for (int n = 0; n < 3; ++n) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Submit(15);
  }
  EXPECT_EQ(rest.get(), wave + 15);
  // Many do not wait for the one that has ended.
  std::promise<void> again;
  std::future<uint64_t> all = Block(again, 4);
  Submit(3);
  for (int n = 0; n < 3; ++n) Submit(8);
  again.set_value();
  all.get();
}

TEST_F(EngineThreadTest, ASequenceThatEndedAloneIsFollowedAtOnce) {
  Start(/*gather_seconds=*/1000);
  for (int n = 0; n < 5; ++n) {
    std::promise<void> go;
    std::future<uint64_t> steps = Block(go, 1);
    Submit(3);
    go.set_value();
    steps.get();
  }
  // Fewer than before: the others are not waited for without end.
  Start(/*gather_seconds=*/0.01);
  std::promise<void> go, again;
  std::future<uint64_t> three = Block(go, 3);
  for (int n = 0; n < 3; ++n) Submit(3);
  go.set_value();
  three.get();
  std::future<uint64_t> one = Block(again, 1);
  Submit(3);
  again.set_value();
  one.get();
}

TEST_F(EngineThreadTest, OneCallBetweenTwoSteps) {
  Start(EngineThread::kGatherSeconds);
  std::promise<void> go;
  std::future<uint64_t> done = Block(go, 1);
  Submit(20);
  for (int n = 0; n < 5; ++n) thread_->Call([this] { log_.order += 'c'; });
  go.set_value();
  done.get();
  thread_.reset();
  EXPECT_EQ(log_.order.substr(0, 10), "cscscscscs");
}

}  // namespace
}  // namespace denseformer

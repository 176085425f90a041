#include "serve/engine_thread.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr int kMostUnacknowledged = 8;

}  // namespace

EngineThread::EngineThread(const EngineOptions& options, Callbacks callbacks, double gather_seconds)
    : options_(options),
      callbacks_(std::move(callbacks)),
      gather_time_(gather_seconds),
      thread_([this] { Main(); }) {}

EngineThread::~EngineThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EngineThread::Push(Command command) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    submitted_ += command.kind == Command::kSubmit ? 1 : 0;
    commands_.push_back(std::move(command));
  }
  changed_.notify_all();
}

void EngineThread::Submit(SequenceKey key, SequenceRequest request) {
  Push({Command::kSubmit, key, std::move(request), {}});
}

void EngineThread::Cancel(SequenceKey key) { Push({Command::kCancel, key, {}, {}}); }

void EngineThread::Call(std::function<void()> work) {
  Push({Command::kCall, 0, {}, std::move(work)});
}

void EngineThread::Acknowledge() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --unacknowledged_;
  }
  changed_.notify_all();
}

void EngineThread::Main() {
  try {
    const LanguageModel model = callbacks_.load();
    DecodeEngine engine = DecodeEngine::Create(model, options_);
    callbacks_.ready(model);
    Loop(engine);
  } catch (const Error& error) {
    callbacks_.failed(error);
  } catch (const std::bad_alloc&) {
    callbacks_.failed(Error(ErrorCode::kInternal, "engine: out of memory"));
  } catch (const std::exception& error) {
    callbacks_.failed(Error(ErrorCode::kInternal, fmt::format("engine: {}", error.what())));
  }
}

bool EngineThread::WaitForWork(bool idle, std::vector<Command>& commands) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] {
    return stop_ || ((!idle || !commands_.empty()) && unacknowledged_ < kMostUnacknowledged);
  });
  const auto followed = [&] { return stop_ || submitted_ >= departed_; };
  const bool worth_waiting = std::ssize(ids_) <= departed_ && (!idle || submitted_ > 0);
  if (worth_waiting && !changed_.wait_for(lock, gather_time_, followed)) departed_ = 0;
  commands = std::exchange(commands_, {});
  departed_ = std::max(0, departed_ - std::exchange(submitted_, 0));
  return !stop_;
}

void EngineThread::Loop(DecodeEngine& engine) {
  std::vector<Command> commands;
  while (WaitForWork(engine.idle() && calls_.empty(), commands)) {
    EngineUpdate update;
    for (Command& command : commands) Execute(engine, command, update);
    Deliver(engine, update);
    if (!calls_.empty()) {
      const std::function<void()> work = std::move(calls_.front());
      calls_.pop_front();
      work();
    }
    if (engine.idle()) continue;
    EngineUpdate after;
    Step(engine, after);
    Deliver(engine, after);
  }
}

void EngineThread::Execute(DecodeEngine& engine, Command& command, EngineUpdate& update) {
  if (command.kind == Command::kCall) return calls_.push_back(std::move(command.work));
  if (command.kind == Command::kCancel) {
    const auto found = ids_.find(command.key);
    if (found == ids_.end()) return;  // finished meanwhile, or refused
    engine.Cancel(found->second);
    update.cancelled = true;
    std::erase(waiting_, command.key);
    keys_.erase(found->second);
    ids_.erase(found);
    return;
  }
  try {
    const SequenceId id = engine.Add(std::move(command.request));
    ids_[command.key] = id;
    keys_[id] = command.key;
    waiting_.push_back(command.key);
    update.accepted.push_back(command.key);
  } catch (const Error& error) {
    update.refused.push_back({command.key, error});
  }
}

void EngineThread::Step(DecodeEngine& engine, EngineUpdate& update) {
  std::vector<EngineEvent> events = engine.Step();
  // The engine admits in order of arrival, so those that still wait are the last ones.
  while (waiting_.size() > static_cast<size_t>(engine.stats().waiting)) {
    update.started.push_back(waiting_.front());
    waiting_.pop_front();
  }
  for (EngineEvent& event : events) {
    const auto found = keys_.find(event.id);
    DF_CHECK(found != keys_.end());
    const SequenceKey key = found->second;
    if (event.finish) {
      ++departed_;
      ids_.erase(key);
      keys_.erase(found);
    }
    update.events.push_back({key, std::move(event)});
  }
}

void EngineThread::Deliver(const DecodeEngine& engine, EngineUpdate& update) {
  if (update.accepted.empty() && update.refused.empty() && update.events.empty() &&
      update.started.empty() && !update.cancelled) {
    return;
  }
  update.stats = engine.stats();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++unacknowledged_;
  }
  callbacks_.update(std::move(update));
}

}  // namespace denseformer

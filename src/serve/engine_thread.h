// The thread that owns the engine, and the mailbox through which others talk to it.
//
// Commands take effect before the next step. What a step brought is handed to a callback on the
// engine's thread, which must only pass it on; the engine waits where the receiver falls behind
// (Acknowledge), so that what is under way between the two is bounded.
#ifndef DENSEFORMER_SERVE_ENGINE_THREAD_H_
#define DENSEFORMER_SERVE_ENGINE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "denseformer/engine.h"
#include "denseformer/error.h"

namespace denseformer {

// Names a sequence towards the engine thread; chosen by the caller, never used twice.
using SequenceKey = uint64_t;

// What happened since the last update.
struct EngineUpdate {
  struct Event {
    SequenceKey key;
    EngineEvent event;
  };
  struct Refusal {
    SequenceKey key;
    Error error;
  };
  std::vector<SequenceKey> accepted;  // they are queued now
  std::vector<Refusal> refused;
  std::vector<SequenceKey> started;  // they wait no longer
  std::vector<Event> events;
  bool cancelled = false;  // a sequence left at the caller's wish
  EngineStats stats;
};

class EngineThread {
 public:
  // All called on the engine's thread.
  struct Callbacks {
    std::function<LanguageModel()> load;
    std::function<void(const LanguageModel&)> ready;
    std::function<void(EngineUpdate)> update;  // Acknowledge() each
    // Loading or a step failed; the thread has ended.
    std::function<void(const Error&)> failed;
  };

  // Texts of equal length end in the same step, and their clients ask again within a moment. An
  // engine that would take the next step with the few that are left, or with the first that comes,
  // would keep all others waiting for it, every time. So where at least as many have ended as are
  // left, it waits this long, once, for as many to come.
  static constexpr double kGatherSeconds = 0.002;

  // Starts the thread, which loads the model first.
  EngineThread(const EngineOptions& options, Callbacks callbacks,
               double gather_seconds = kGatherSeconds);
  // Ends it after the step under way.
  ~EngineThread();

  // From any thread:
  void Submit(SequenceKey key, SequenceRequest request);
  void Cancel(SequenceKey key);
  // Calls `work` between two steps, one such call at a time.
  void Call(std::function<void()> work);
  void Acknowledge();

 private:
  struct Command {
    enum Kind { kSubmit, kCancel, kCall } kind;
    SequenceKey key = 0;
    SequenceRequest request;
    std::function<void()> work;
  };

  void Push(Command command);
  void Main();
  void Loop(DecodeEngine& engine);
  // False where the thread is to end. `idle`: there is nothing to do but what others send.
  bool WaitForWork(bool idle, std::vector<Command>& commands);
  void Execute(DecodeEngine& engine, Command& command, EngineUpdate& update);
  void Step(DecodeEngine& engine, EngineUpdate& update);
  void Deliver(const DecodeEngine& engine, EngineUpdate& update);

  EngineOptions options_;
  Callbacks callbacks_;
  const std::chrono::duration<double> gather_time_;
  // Of the engine's thread.
  std::map<SequenceKey, SequenceId> ids_;
  std::map<SequenceId, SequenceKey> keys_;
  std::deque<SequenceKey> waiting_;  // accepted, not started, in order
  std::deque<std::function<void()>> calls_;
  int departed_ = 0;  // sequences that ended and were not followed by others

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> commands_;
  int submitted_ = 0;  // among the commands
  int unacknowledged_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_ENGINE_THREAD_H_

// Each thread beside the leader has a seat. The leader writes a call into seats whose threads wait,
// and each thread watches only its own seat, so that threads that come late or never are left out.
#include "base/team.h"

#include <exception>
#include <memory>
#include <thread>
#include <utility>

namespace denseformer {
namespace {

// Looks at a seat before a thread lets others run meanwhile: some 100 microseconds, longer than
// what one thread does alone between the passes of a decode step. Sleeping is the last resort:
// where other programs keep the machine busy, it takes milliseconds to come back.
constexpr int kSpins = 4000, kYields = 200;
// Bytes that are fetched between two looks at the seat.
constexpr size_t kFetch = 256;

std::atomic<uint64_t> region_count{0}, call_count{0};

struct Upcoming {
  const char* at = nullptr;
  const char* end = nullptr;
};
thread_local Upcoming upcoming;

// The leader moves a seat from kWaiting to kCalled, its thread from there to kRunning and back to
// kWaiting. The leader takes a call back where the thread has not begun: on a busy machine it may
// not run for milliseconds.
enum State : int { kAbsent, kWaiting, kCalled, kRunning, kOver };

struct alignas(64) Seat {
  std::atomic<int> state{kAbsent};
  // Of the call, while the state is kCalled or kRunning.
  TaskFunction run;
  void* context;
  int first, step, tasks;
  std::exception_ptr failure;
  bool called = false;  // in the call under way; for the leader alone
};

struct Team {
  std::unique_ptr<Seat[]> seats;  // [size]
  int size = 0;
};
thread_local Team* leading = nullptr;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Fetches a piece of what comes next; false where nothing is left.
bool FetchUpcoming() {
  if (upcoming.at >= upcoming.end) return false;
  for (size_t line = 0; line < kFetch; line += 64) __builtin_prefetch(upcoming.at + line, 0, 2);
  upcoming.at += kFetch;
  return true;
}

// Waits while the seat is in this state.
void WaitWhile(Seat& seat, State state) {
  for (int tries = 0; tries < kSpins + kYields; ++tries) {
    if (seat.state.load(std::memory_order_acquire) != state) return;
    if (tries >= kSpins) {
      std::this_thread::yield();
    } else if (!FetchUpcoming()) {
      Pause();
    }
  }
  while (seat.state.load(std::memory_order_acquire) == state) {
    seat.state.wait(state, std::memory_order_acquire);
  }
}

// Sequentially consistent, or notify_one could miss a thread that is about to sleep.
void SetState(Seat& seat, State state) {
  seat.state.store(state, std::memory_order_seq_cst);
  seat.state.notify_one();
}

void RunTasks(TaskFunction run, void* context, int first, int step, int tasks,
              std::exception_ptr& failure) {
  for (int task = first; task < tasks; task += step) {
    try {
      run(context, task);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
}

void TakeSeat(Seat& seat) {
  int expected = kAbsent;
  if (!seat.state.compare_exchange_strong(expected, kWaiting)) return;  // over already
  upcoming = Upcoming();
  while (true) {
    WaitWhile(seat, kWaiting);
    int called = kCalled;
    if (!seat.state.compare_exchange_strong(called, kRunning)) {
      if (called == kOver) return;
      continue;  // taken back
    }
    RunTasks(seat.run, seat.context, seat.first, seat.step, seat.tasks, seat.failure);
    SetState(seat, kWaiting);
  }
}

void Lead(Team& team, FunctionRef<void()> work) {
  struct End {
    Team& team;
    ~End() {
      leading = nullptr;
      for (int s = 0; s < team.size; ++s) SetState(team.seats[s], kOver);
    }
  } end{team};
  // Those who come late take no part in the first passes.
  for (int s = 0, spins = 0; s < team.size && spins < kSpins; ++s) {
    while (team.seats[s].state.load(std::memory_order_acquire) == kAbsent && ++spins < kSpins) {
      Pause();
    }
  }
  upcoming = Upcoming();
  leading = &team;
  work();
}

}  // namespace

namespace team_internal {

void CountRegion() { region_count.fetch_add(1, std::memory_order_relaxed); }

bool RunOnTeam(int tasks, TaskFunction run, void* context) {
  if (leading == nullptr) return false;
  Team& team = *std::exchange(leading, nullptr);  // a call from inside a task runs serially
  int count = 1;
  for (int s = 0; s < team.size; ++s) {
    Seat& seat = team.seats[s];
    seat.called = count < tasks && seat.state.load(std::memory_order_acquire) == kWaiting;
    if (seat.called) ++count;
  }
  int first = 0;
  for (int s = 0; s < team.size; ++s) {
    Seat& seat = team.seats[s];
    if (!seat.called) continue;
    seat.run = run;
    seat.context = context;
    seat.first = ++first;
    seat.step = count;
    seat.tasks = tasks;
    seat.failure = nullptr;
    SetState(seat, kCalled);
  }
  if (count > 1) call_count.fetch_add(1, std::memory_order_relaxed);
  std::exception_ptr failure;
  RunTasks(run, context, 0, count, tasks, failure);
  for (int s = 0; s < team.size; ++s) {
    Seat& seat = team.seats[s];
    if (!seat.called) continue;
    int called = kCalled;
    if (seat.state.compare_exchange_strong(called, kWaiting)) {
      RunTasks(run, context, seat.first, seat.step, tasks, seat.failure);
    } else {
      WaitWhile(seat, kRunning);
    }
    if (!failure) failure = seat.failure;
  }
  leading = &team;
  if (failure) std::rethrow_exception(failure);
  return true;
}

}  // namespace team_internal

void RunAsTeam(FunctionRef<void()> work) {
  if (NumThreads() == 1 || leading != nullptr) return work();
  Team team;
  team.size = NumThreads() - 1;
  team.seats = std::make_unique<Seat[]>(static_cast<size_t>(team.size));
  const auto run = [&](int task) {
    if (task == 0) {
      Lead(team, work);
    } else {
      TakeSeat(team.seats[task - 1]);
    }
  };
  using Run = decltype(run);
  ParallelRun(
      NumThreads(), [](void* context, int task) { (*static_cast<Run*>(context))(task); },
      const_cast<void*>(static_cast<const void*>(&run)));
}

void SetUpcomingRead(const void* begin, size_t bytes) {
  upcoming = {static_cast<const char*>(begin), static_cast<const char*>(begin) + bytes};
}

ParallelCounts CountParallel() {
  return {region_count.load(std::memory_order_relaxed), call_count.load(std::memory_order_relaxed)};
}

}  // namespace denseformer

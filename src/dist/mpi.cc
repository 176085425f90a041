// The communicator of several processes. Of MPI it uses non-blocking point-to-point messages only.
//
// Beside the rank's own thread, which works and communicates, a monitor thread on every rank talks
// on a communicator of its own: twice a second each rank tells rank 0 whom it waits for and rank 0
// tells each that it is there, and a rank that fails tells rank 0 why. Rank 0 prints that one line
// and ends the job. The calls of the monitor also move the messages of the rank's thread on while
// that computes, which MPI does not promise to do by itself.
//
// A launcher that finds a rank dead sends a signal to the others, which then want to save; but they
// cannot without it. So after a signal a rank that has become silent ends the job.
//
// MPI's C++ classes, which its third version has dropped, want a library of their own.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/signal.h"
#include "dist/communicator.h"
#include "dist/watchdog.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// MPI's own error handler ends the job; a code comes back from few calls.
void Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  Throw(ErrorCode::kIo, "MPI: {} failed: {}", what, std::string(text, static_cast<size_t>(length)));
}

// Whom the rank's thread waits for, as its monitor reads it.
struct WaitState {
  std::atomic<int> in_flight = 0;  // messages that are under way
  std::atomic<int> rank = -1;
  std::atomic<int64_t> since_ns = 0;  // of Clock
};

// MPI counts in int: longer messages travel in several pieces.
constexpr size_t kLongestPiece = size_t{1} << 30;

class MpiMessage : public Message {
 public:
  MpiMessage(int peer, WaitState& wait) : peer_(peer), wait_(wait) { ++wait_.in_flight; }
  ~MpiMessage() override {
    --wait_.in_flight;
    // Only where an exception ends the work: the job ends as well.
    for (MPI_Request& request : requests_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

  MPI_Request* Add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  void Reserve(size_t pieces) { requests_.reserve(pieces); }

  bool Done() override {
    int done = 0;
    Check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                      MPI_STATUSES_IGNORE),
          "test");
    return done != 0;
  }

  // Yields the core at once, and sleeps after a while: ranks may share cores, and the ones that
  // compute need them.
  void Wait() override {
    if (Done()) return;
    const Clock::time_point begin = Clock::now();
    wait_.since_ns = begin.time_since_epoch().count();
    wait_.rank = peer_;
    while (!Done()) {
      if (Since(begin) < 0.01) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
    wait_.rank = -1;
  }

 private:
  int peer_;
  WaitState& wait_;
  std::vector<MPI_Request> requests_;
};

// What a monitor sends to rank 0.
struct Report {
  enum Kind : int32_t { kStatus, kFailed, kDone };
  int32_t kind = kStatus;
  int32_t waits_for = -1;
  double waited = 0;
  int32_t exit_status = 0;
  char message[2048] = {};
};

constexpr int kReportTag = 0, kPulseTag = 1;
constexpr auto kReportPeriod = std::chrono::milliseconds(500);
constexpr auto kMonitorPeriod = std::chrono::milliseconds(20);
constexpr auto kProgressPeriod = std::chrono::milliseconds(1);  // while messages are under way
constexpr auto kFirstSpeaks = std::chrono::seconds(1);
constexpr double kSilenceAfterSignal = 10;  // seconds

class Monitor {
 public:
  Monitor(MPI_Comm comm, int rank, int size, const WaitState& wait)
      : comm_(comm), rank_(rank), size_(size), wait_(wait), reports_(static_cast<size_t>(size)) {
    for (Seen& seen : reports_) seen.at = Clock::now();
    thread_ = std::thread([this] { rank_ == 0 ? Listen() : Tell(); });
  }

  void SetLimit(double seconds) { limit_ = seconds; }

  // Ends the thread once all ranks have come here.
  void Stop() {
    stop_ = true;
    thread_.join();
  }

  void Fail(const std::string& message, int status) {
    if (rank_ == 0) End(message, status);
    // Where all ranks fail alike, rank 0 speaks.
    std::this_thread::sleep_for(kFirstSpeaks);
    Report report;
    report.kind = Report::kFailed;
    report.exit_status = status;
    std::strncpy(report.message, message.c_str(), sizeof(report.message) - 1);
    {
      const std::lock_guard lock(failure_mutex_);
      failure_ = report;
    }
    // Rank 0 ends this process. Should rank 0 be unable to, this rank does.
    std::this_thread::sleep_for(std::chrono::seconds(60));
    LogError("rank {}: {}", rank_, message);
    MPI_Abort(MPI_COMM_WORLD, status);
  }

 private:
  struct Seen {
    Report report;
    Clock::time_point at;
  };

  // The first failure is the one that is printed; nobody returns from here.
  void End(const std::string& message, int status) {
    static std::mutex once;
    once.lock();
    LogError("{}", message);
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
  }

  Report Status() const {
    Report report;
    report.waits_for = wait_.rank;
    if (report.waits_for >= 0) {
      const Clock::time_point since{Clock::duration(wait_.since_ns.load())};
      report.waited = Since(since);
    }
    return report;
  }

  void Send(const Report& report) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&report, sizeof(report), MPI_BYTE, 0, kReportTag, comm_, &request);
    int done = 0;
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
      std::this_thread::sleep_for(kMonitorPeriod);
    }
  }

  void Pause() const {
    std::this_thread::sleep_for(wait_.in_flight > 0 ? kProgressPeriod : kMonitorPeriod);
  }

  // Ranks above 0: takes what rank 0 sends; where that is gone after a signal, ends this rank.
  void HearFirst() {
    int arrived = 0;
    MPI_Iprobe(0, kPulseTag, comm_, &arrived, MPI_STATUS_IGNORE);
    if (arrived) {
      char pulse;
      MPI_Recv(&pulse, 1, MPI_BYTE, 0, kPulseTag, comm_, MPI_STATUS_IGNORE);
      reports_[0].at = Clock::now();
    } else if (!Interrupted()) {
      quiet_since_ = Clock::now();
    } else if (Since(std::max(reports_[0].at, quiet_since_)) > kSilenceAfterSignal) {
      _exit(ExitStatus(ErrorCode::kIo));
    }
  }

  // Ranks above 0.
  void Tell() {
    Clock::time_point next = Clock::now();
    for (bool stopped = false; !stopped;) {
      std::optional<Report> failure;
      {
        const std::lock_guard lock(failure_mutex_);
        failure.swap(failure_);
      }
      if (failure) Send(*failure);
      stopped = stop_;
      if (stopped) {
        Report done;
        done.kind = Report::kDone;
        Send(done);
      } else if (Clock::now() >= next) {
        Send(Status());
        next = Clock::now() + kReportPeriod;
      }
      HearFirst();
      Pause();
    }
  }

  // Rank 0.
  void Listen() {
    int done_ranks = 0;
    Clock::time_point next = Clock::now();
    while (!stop_ || done_ranks < size_ - 1) {
      int arrived = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, kReportTag, comm_, &arrived, &status);
      if (!arrived) {
        LookForHang();
        if (Clock::now() >= next) {
          SendPulse();
          next = Clock::now() + kReportPeriod;
        }
        Pause();
        continue;
      }
      Seen& seen = reports_[static_cast<size_t>(status.MPI_SOURCE)];
      MPI_Recv(&seen.report, sizeof(Report), MPI_BYTE, status.MPI_SOURCE, kReportTag, comm_,
               MPI_STATUS_IGNORE);
      seen.at = Clock::now();
      done_ranks += seen.report.kind == Report::kDone;
      if (seen.report.kind == Report::kFailed) {
        End(fmt::format("rank {}: {}", status.MPI_SOURCE, seen.report.message),
            seen.report.exit_status);
      }
    }
  }

  // To all that have not ended.
  void SendPulse() {
    const char pulse = 0;
    for (int r = 1; r < size_; ++r) {
      if (reports_[static_cast<size_t>(r)].report.kind == Report::kDone) continue;
      MPI_Send(&pulse, 1, MPI_BYTE, r, kPulseTag, comm_);
    }
  }

  void LookForHang() {
    reports_[0] = {Status(), Clock::now()};
    std::vector<RankStatus> ranks;
    for (const Seen& seen : reports_) {
      const double silent = seen.report.kind == Report::kDone ? 0 : Since(seen.at);
      // A report grows older while it waits here.
      ranks.push_back({seen.report.waits_for,
                       seen.report.waits_for >= 0 ? seen.report.waited + silent : 0, silent});
    }
    if (!Interrupted()) quiet_since_ = Clock::now();
    const bool signaled = Since(quiet_since_) > kSilenceAfterSignal;
    for (size_t r = 1; signaled && r < ranks.size(); ++r) {
      if (ranks[r].silent > kSilenceAfterSignal) {
        End(fmt::format("rank {} is gone; the others were told to stop and cannot save", r),
            ExitStatus(ErrorCode::kIo));
      }
    }
    const std::string hang = FindHang(ranks, limit_);
    if (!hang.empty()) End("watchdog: " + hang, ExitStatus(ErrorCode::kBusy));
  }

  MPI_Comm comm_;
  int rank_, size_;
  const WaitState& wait_;
  std::vector<Seen> reports_;
  Clock::time_point quiet_since_ = Clock::now();  // the last time that no signal had come
  std::atomic<double> limit_ = 1e9;
  std::atomic<bool> stop_ = false;
  std::mutex failure_mutex_;
  std::optional<Report> failure_;
  std::thread thread_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(int rank, int size) : Communicator(rank, size) {
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &work_), "duplicating the communicator");
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "duplicating the communicator");
    monitor_.emplace(control_, rank, size, wait_);
  }

  ~MpiCommunicator() override {
    monitor_->Stop();
    MPI_Comm_free(&work_);
    MPI_Comm_free(&control_);
    MPI_Finalize();
  }

  void SetWatchdog(double seconds) override { monitor_->SetLimit(seconds); }
  void Fail(const std::string& message, int status) override { monitor_->Fail(message, status); }

 private:
  std::unique_ptr<Message> DoSend(int to, int tag, std::span<const std::byte> bytes) override {
    auto message = std::make_unique<MpiMessage>(to, wait_);
    message->Reserve(bytes.size() / kLongestPiece + 1);
    do {
      const size_t size = std::min(bytes.size(), kLongestPiece);
      Check(
          MPI_Isend(bytes.data(), static_cast<int>(size), MPI_BYTE, to, tag, work_, message->Add()),
          "send");
      bytes = bytes.subspan(size);
    } while (!bytes.empty());
    return message;
  }

  std::unique_ptr<Message> DoReceive(int from, int tag, std::span<std::byte> bytes) override {
    auto message = std::make_unique<MpiMessage>(from, wait_);
    message->Reserve(bytes.size() / kLongestPiece + 1);
    do {
      const size_t size = std::min(bytes.size(), kLongestPiece);
      Check(MPI_Irecv(bytes.data(), static_cast<int>(size), MPI_BYTE, from, tag, work_,
                      message->Add()),
            "receive");
      bytes = bytes.subspan(size);
    } while (!bytes.empty());
    return message;
  }

  MPI_Comm work_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  WaitState wait_;
  std::optional<Monitor> monitor_;
};

}  // namespace

std::unique_ptr<Communicator> MakeWorldCommunicator() {
  // A process that was started alone does without MPI, which would cost it time and memory.
  if (LaunchedProcesses() == 1) return MakeSingleCommunicator();
  int level = 0, rank = 0, size = 1;
  Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "start");
  if (level < MPI_THREAD_MULTIPLE) {
    Throw(ErrorCode::kUnsupported, "MPI: {} has no thread level MPI_THREAD_MULTIPLE", MpiVersion());
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::make_unique<MpiCommunicator>(rank, size);
}

std::string MpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace denseformer

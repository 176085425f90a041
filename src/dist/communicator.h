// Messages between the processes (ranks) of one job. One rank is the normal case: everything below
// then costs nothing. Collective operations are functions on top (collectives.h), so that their
// order of sums is ours and not the MPI library's.
//
// Not thread-safe: one thread of a rank communicates.
#ifndef DENSEFORMER_DIST_COMMUNICATOR_H_
#define DENSEFORMER_DIST_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace denseformer {

// Separates messages between the same two ranks; messages of one tag arrive in the order in which
// they were sent.
enum class MessageTag { kCollective = 1, kGradients, kWeights, kState, kForward, kBackward, kTest };
inline constexpr int kMostTags = 64;

// A message under way. Its memory must stay in place, and a sent one unchanged, until it is done.
class Message {
 public:
  virtual ~Message() = default;
  // Whether the message is done; also moves all messages of the rank on.
  virtual bool Done() = 0;
  virtual void Wait() = 0;
};

// Bytes that a rank has sent and received, to and from each other rank.
struct Traffic {
  std::vector<int64_t> sent, received;  // [size]
  int64_t total_sent() const;
  int64_t total_received() const;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The rank that logs, shows progress and writes files.
  bool first() const { return rank_ == 0; }

  // Non-blocking; the other side must expect the same number of bytes.
  std::unique_ptr<Message> StartSend(int to, MessageTag tag, std::span<const std::byte> bytes);
  std::unique_ptr<Message> StartReceive(int from, MessageTag tag, std::span<std::byte> bytes);
  void Send(int to, MessageTag tag, std::span<const std::byte> bytes);
  void Receive(int from, MessageTag tag, std::span<std::byte> bytes);

  // Of all messages since the start, counted when they are started.
  const Traffic& traffic() const { return traffic_; }

  // Seconds that a rank may wait for another before the job ends with an error that names the rank
  // that everybody waits for.
  virtual void SetWatchdog(double seconds) {}

  // Ends all ranks: rank 0 prints `message` (as LogError does, with the number of the rank that
  // failed if that is another), and the job ends with exit status `status`. With one rank it only
  // prints.
  virtual void Fail(const std::string& message, int status);

 protected:
  Communicator(int rank, int size);

 private:
  friend class GroupCommunicator;
  std::unique_ptr<Message> CountAndSend(int to, int tag, std::span<const std::byte> bytes);
  std::unique_ptr<Message> CountAndReceive(int from, int tag, std::span<std::byte> bytes);
  virtual std::unique_ptr<Message> DoSend(int to, int tag, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Message> DoReceive(int from, int tag, std::span<std::byte> bytes) = 0;

  int rank_, size_;
  Traffic traffic_;
};

// The one rank of a job of one process.
std::unique_ptr<Communicator> MakeSingleCommunicator();

// Some ranks of `parent` as ranks of their own, in the order of `members`, this rank among them.
// `id` from 1 keeps its messages apart from those of the parent and of groups with other ids; the
// members must give the same. Its messages count in its own traffic and in the parent's. The parent
// must outlive it.
std::unique_ptr<Communicator> MakeGroup(Communicator& parent, const std::vector<int>& members,
                                        int id);

// The ranks that mpirun, srun or the like started this process with; a single one where it was
// started alone. At most once per process: MPI starts here, and ends with the communicator. Throws
// kUnsupported where several processes were started and this build has no MPI.
std::unique_ptr<Communicator> MakeWorldCommunicator();

// The version of the MPI library, or "none".
std::string MpiVersion();

// The number of processes that the launcher says it started together with this one, from its
// environment variables; 1 where there is none.
int LaunchedProcesses();

}  // namespace denseformer

#endif  // DENSEFORMER_DIST_COMMUNICATOR_H_

#include "dist/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/log.h"

namespace denseformer {
namespace {

// With one rank there is nobody to talk to.
class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator() : Communicator(0, 1) {}

 private:
  std::unique_ptr<Message> DoSend(int, int, std::span<const std::byte>) override { return {}; }
  std::unique_ptr<Message> DoReceive(int, int, std::span<std::byte>) override { return {}; }
};

}  // namespace

class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(Communicator& parent, const std::vector<int>& members, int rank, int id)
      : Communicator(rank, static_cast<int>(members.size())),
        parent_(parent),
        members_(members),
        first_tag_(id * kMostTags) {}

  void SetWatchdog(double seconds) override { parent_.SetWatchdog(seconds); }
  void Fail(const std::string& message, int status) override { parent_.Fail(message, status); }

 private:
  std::unique_ptr<Message> DoSend(int to, int tag, std::span<const std::byte> bytes) override {
    return parent_.CountAndSend(members_[static_cast<size_t>(to)], first_tag_ + tag, bytes);
  }
  std::unique_ptr<Message> DoReceive(int from, int tag, std::span<std::byte> bytes) override {
    return parent_.CountAndReceive(members_[static_cast<size_t>(from)], first_tag_ + tag, bytes);
  }

  Communicator& parent_;
  std::vector<int> members_;
  int first_tag_;
};

int64_t Traffic::total_sent() const {
  return std::accumulate(sent.begin(), sent.end(), int64_t{0});
}

int64_t Traffic::total_received() const {
  return std::accumulate(received.begin(), received.end(), int64_t{0});
}

Communicator::Communicator(int rank, int size) : rank_(rank), size_(size) {
  DF_CHECK(size >= 1 && rank >= 0 && rank < size);
  traffic_.sent.resize(static_cast<size_t>(size));
  traffic_.received.resize(static_cast<size_t>(size));
}

std::unique_ptr<Message> Communicator::StartSend(int to, MessageTag tag,
                                                 std::span<const std::byte> bytes) {
  return CountAndSend(to, static_cast<int>(tag), bytes);
}

std::unique_ptr<Message> Communicator::StartReceive(int from, MessageTag tag,
                                                    std::span<std::byte> bytes) {
  return CountAndReceive(from, static_cast<int>(tag), bytes);
}

std::unique_ptr<Message> Communicator::CountAndSend(int to, int tag,
                                                    std::span<const std::byte> bytes) {
  DF_CHECK(to >= 0 && to < size_ && to != rank_);
  traffic_.sent[static_cast<size_t>(to)] += static_cast<int64_t>(bytes.size());
  return DoSend(to, tag, bytes);
}

std::unique_ptr<Message> Communicator::CountAndReceive(int from, int tag,
                                                       std::span<std::byte> bytes) {
  DF_CHECK(from >= 0 && from < size_ && from != rank_);
  traffic_.received[static_cast<size_t>(from)] += static_cast<int64_t>(bytes.size());
  return DoReceive(from, tag, bytes);
}

void Communicator::Send(int to, MessageTag tag, std::span<const std::byte> bytes) {
  StartSend(to, tag, bytes)->Wait();
}

void Communicator::Receive(int from, MessageTag tag, std::span<std::byte> bytes) {
  StartReceive(from, tag, bytes)->Wait();
}

void Communicator::Fail(const std::string& message, int) { LogError("{}", message); }

std::unique_ptr<Communicator> MakeSingleCommunicator() {
  return std::make_unique<SingleCommunicator>();
}

std::unique_ptr<Communicator> MakeGroup(Communicator& parent, const std::vector<int>& members,
                                        int id) {
  const auto found = std::find(members.begin(), members.end(), parent.rank());
  DF_CHECK(found != members.end() && id >= 1);
  return std::make_unique<GroupCommunicator>(parent, members,
                                             static_cast<int>(found - members.begin()), id);
}

int LaunchedProcesses() {
  // Open MPI, MPICH and its relatives, Slurm's srun for an MPI program.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  }
  // PMIx alone (srun --mpi=pmix) tells the rank, and Slurm the number of tasks of the step.
  if (std::getenv("PMIX_RANK") != nullptr) {
    if (const char* value = std::getenv("SLURM_STEP_NUM_TASKS"))
      return std::max(1, std::atoi(value));
  }
  return 1;
}

}  // namespace denseformer

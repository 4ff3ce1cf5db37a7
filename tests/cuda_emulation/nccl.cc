// NCCL's part in the emulation: what device_ranks_cuda.cu calls, between processes of one machine, over a
// file that all of them map. Sums are in double, in the order of the ranks. It tells what the library would
// answer with a hang or with garbage: ranks that do not make the same call, arrays that are not wholly in
// live device memory or lie askew, operands that overlap other than in place, a communicator that is gone.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl_calls.h"
#include "cuda_runtime.h"
#include "emulation.h"

namespace {

constexpr int kMostRanks = 8;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // of one rank's part in a call

enum class Kind : int { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

// What all ranks must agree on.
struct Call {
  Kind kind = Kind::kAllReduce;
  int type = 0, root = 0;
  std::size_t count = 0;
  bool operator==(const Call&) const = default;
};

struct Slot {
  std::atomic<std::uint64_t> arrived, left;  // numbers of calls
  Call call;
  unsigned char data[kMostBytes];
};
struct Meeting {
  std::atomic<int> joined;
  Slot slots[kMostRanks];
};

std::size_t bytes_of(int type) {
  return type == eaglet::nccl::kFloat64 ? 8 : type == eaglet::nccl::kFloat32 ? 4 : 1;
}

}  // namespace

struct ncclComm {
  Meeting* meeting = nullptr;
  int rank = 0, ranks = 0;
  bool live = true, aborted = false, in_progress = false;
  std::uint64_t calls = 0;
};

namespace {

std::vector<std::unique_ptr<ncclComm>>& communicators() {
  static auto* const all = new std::vector<std::unique_ptr<ncclComm>>();
  return *all;
}

int refuse(const std::string& why) {
  emulation::fault("NCCL: " + why);
  return eaglet::nccl::kInvalidArgument;
}

Meeting* map(const char* path, bool create) {
  const int fd = ::open(path, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (!create || ::ftruncate(fd, sizeof(Meeting)) == 0)
    memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Meeting*>(memory);
}

int get_version(int* version) {
  *version = 22000;
  return eaglet::nccl::kSuccess;
}

int get_unique_id(eaglet::nccl::UniqueId* id) {
  static int number = 0;
  const std::string name = "eaglet_ranks_" + std::to_string(::getpid()) + "_" + std::to_string(number++);
  std::string path = "/dev/shm/" + name;
  Meeting* meeting = map(path.c_str(), true);
  if (meeting == nullptr) meeting = map((path = "/tmp/" + name).c_str(), true);
  if (meeting == nullptr) return 2;  // ncclSystemError
  ::munmap(meeting, sizeof *meeting);
  std::memcpy(id->internal, path.c_str(), path.size() + 1);
  return eaglet::nccl::kSuccess;
}

int comm_init(eaglet::nccl::Communicator* comm, int ranks, eaglet::nccl::UniqueId id, int rank,
              eaglet::nccl::Config* config) {
  if (config->size < sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
    return refuse("a configuration that the library would not take, or that waits for other ranks");
  if (rank < 0 || rank >= ranks || ranks > kMostRanks) return refuse("a rank beyond the ranks");
  auto made = std::make_unique<ncclComm>();
  made->meeting = map(id.internal, false);
  if (made->meeting == nullptr) return refuse("an id that no rank has made");
  made->rank = rank;
  made->ranks = ranks;
  if (++made->meeting->joined == ranks) ::unlink(id.internal);
  *comm = made.get();
  communicators().push_back(std::move(made));
  return eaglet::nccl::kInProgress;
}

bool is_live(const ncclComm* comm) {
  for (const auto& c : communicators())
    if (c.get() == comm) return c->live;
  return false;
}

int end(ncclComm* comm, bool aborted) {
  if (!is_live(comm)) return refuse("a communicator that is gone");
  comm->live = false;
  comm->aborted = aborted;
  return eaglet::nccl::kSuccess;
}
int comm_destroy(ncclComm* comm) {
  return end(comm, false);
}
int comm_abort(ncclComm* comm) {
  return end(comm, true);
}

int comm_error(ncclComm* comm, int* error) {
  if (!is_live(comm)) return refuse("a communicator that is gone");
  *error = comm->meeting->joined < comm->ranks || comm->in_progress ? eaglet::nccl::kInProgress
                                                                    : eaglet::nccl::kSuccess;
  comm->in_progress = false;
  return eaglet::nccl::kSuccess;
}

// One rank's part of one call.
struct Part {
  ncclComm* comm;
  std::uint64_t number;
  Call call;
  const unsigned char* from;
  unsigned char* to;
  std::size_t from_bytes, to_bytes;

  Slot& slot(int rank) const { return comm->meeting->slots[rank]; }
  bool all(std::atomic<std::uint64_t> Slot::*counter, std::uint64_t least) const {
    for (int r = 0; r < comm->ranks; ++r)
      if (slot(r).*counter < least) return false;
    return true;
  }
  // Brings what this rank has, once all have left the call before; true when all have brought theirs.
  bool meet() const {
    if (comm->aborted) return true;
    if (slot(comm->rank).arrived < number) {
      if (!all(&Slot::left, number - 1)) return false;
      Slot& mine = slot(comm->rank);
      mine.call = call;
      emulation::with_memory_open([&] { std::memcpy(mine.data, from, from_bytes); });
      mine.arrived = number;
    }
    return all(&Slot::arrived, number);
  }
  void take() const {
    if (comm->aborted) return;
    for (int r = 0; r < comm->ranks; ++r)
      if (slot(r).call != call) emulation::fault("NCCL: ranks make different calls, or of other sizes");
    const std::size_t at =
        call.kind == Kind::kReduceScatter ? static_cast<std::size_t>(comm->rank) * to_bytes : 0;
    if (call.kind == Kind::kBroadcast)
      std::memcpy(to, slot(call.root).data, to_bytes);
    else if (call.kind == Kind::kAllGather)
      for (int r = 0; r < comm->ranks; ++r)
        std::memcpy(to + static_cast<std::size_t>(r) * from_bytes, slot(r).data, from_bytes);
    else if (call.type == eaglet::nccl::kFloat64)
      add<double>(at);
    else
      add<float>(at);
    slot(comm->rank).left = number;
  }
  template <class T>
  void add(std::size_t at) const {
    for (std::size_t i = 0; i < to_bytes; i += sizeof(T)) {
      double sum = 0;
      for (int r = 0; r < comm->ranks; ++r) {
        T value;
        std::memcpy(&value, slot(r).data + at + i, sizeof value);
        sum += static_cast<double>(value);
      }
      const T result = static_cast<T>(sum);
      std::memcpy(to + i, &result, sizeof result);
    }
  }
};

bool overlap_askew(const Part& p) {
  const bool apart = p.from + p.from_bytes <= p.to || p.to + p.to_bytes <= p.from;
  const std::size_t place = static_cast<std::size_t>(p.comm->rank) * std::min(p.from_bytes, p.to_bytes);
  const bool in_place = p.call.kind == Kind::kReduceScatter ? p.to == p.from + place
                        : p.call.kind == Kind::kAllGather   ? p.from == p.to + place
                                                            : p.from == p.to;
  return !apart && !in_place;
}

int call(Kind kind, const void* from, void* to, std::size_t count, int type, int root, ncclComm* comm,
         cudaStream_t stream) {
  if (!is_live(comm)) return refuse("a communicator that is gone");
  if (comm->meeting->joined < comm->ranks) return refuse("a call before all ranks have met");
  if (root < 0 || root >= comm->ranks) return refuse("a root beyond the ranks");
  const std::size_t bytes = count * bytes_of(type), many = bytes * static_cast<std::size_t>(comm->ranks);
  Part part{comm,
            comm->calls + 1,
            {kind, type, root, count},
            static_cast<const unsigned char*>(from),
            static_cast<unsigned char*>(to),
            kind == Kind::kReduceScatter ? many : bytes,
            kind == Kind::kAllGather ? many : bytes};
  if (part.from_bytes > kMostBytes) return refuse("more than this stand-in takes at once");
  if (!emulation::lies_in_device(from, part.from_bytes) || !emulation::lies_in_device(to, part.to_bytes))
    return refuse("an array that is not wholly in live device memory");
  if (reinterpret_cast<std::uintptr_t>(from) % bytes_of(type) != 0 ||
      reinterpret_cast<std::uintptr_t>(to) % bytes_of(type) != 0)
    return refuse("an array that is not aligned to its numbers");
  if (overlap_askew(part)) return refuse("arrays that overlap other than in place");
  comm->calls++;
  if (emulation::queue_work_when(
          stream, [part] { return part.meet(); }, [part] { part.take(); }) != cudaSuccess)
    return eaglet::nccl::kUnhandledCudaError;
  comm->in_progress = comm->calls % 2 == 0;  // as it pleases the library
  return comm->in_progress ? eaglet::nccl::kInProgress : eaglet::nccl::kSuccess;
}

int all_reduce(const void* from, void* to, std::size_t count, int type, int op, ncclComm* comm,
               cudaStream_t stream) {
  if (op != eaglet::nccl::kSum) return refuse("another operation than a sum");
  return call(Kind::kAllReduce, from, to, count, type, 0, comm, stream);
}
int reduce_scatter(const void* from, void* to, std::size_t count, int type, int op, ncclComm* comm,
                   cudaStream_t stream) {
  if (op != eaglet::nccl::kSum) return refuse("another operation than a sum");
  return call(Kind::kReduceScatter, from, to, count, type, 0, comm, stream);
}
int all_gather(const void* from, void* to, std::size_t count, int type, ncclComm* comm, cudaStream_t stream) {
  return call(Kind::kAllGather, from, to, count, type, 0, comm, stream);
}
int broadcast(const void* from, void* to, std::size_t count, int type, int root, ncclComm* comm,
              cudaStream_t stream) {
  return call(Kind::kBroadcast, from, to, count, type, root, comm, stream);
}
const char* error_text(int result) {
  return result == eaglet::nccl::kSuccess ? "no error" : "the stand-in refused";
}

}  // namespace

int emulation::live_communicators() {
  int live = 0;
  for (const auto& comm : communicators()) live += comm->live ? 1 : 0;
  return live;
}

eaglet::Result<const eaglet::nccl::Functions*> eaglet::nccl::load() {
  static const Functions calls = {&get_version, &get_unique_id, &comm_init,  &comm_destroy,
                                  &comm_abort,  &comm_error,    &all_reduce, &reduce_scatter,
                                  &all_gather,  &broadcast,     &error_text};
  if (std::getenv("EAGLET_EMULATION_WITHOUT_NCCL") != nullptr)
    return Status(StatusCode::kNotFound, "NCCL is not on this machine");
  return &calls;
}

#include "comm/mpi_comm.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1  // the C interface only: the C++ one is gone from newer MPIs
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "comm/watch_line.h"

namespace eaglet {
namespace {

constexpr double kSecondsToMeet = 60;
constexpr double kSecondsOfHaste = 200e-6;  // a wait this long only yields, then it sleeps between looks
constexpr unsigned kSleepMicroseconds = 100;
constexpr std::int64_t kMostElements = 1 << 28;  // of one call: MPI counts in int
constexpr int kTag = 17;

Status mpi_failure(int code, const char* call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Status(StatusCode::kUnavailable, fmt::format("{}: {}", call, text), "MPI",
                "what was saved is whole: mend the cause and run the same command again");
}

class MpiComm : public Comm {
 public:
  explicit MpiComm(double timeout_seconds) : timeout_seconds_(timeout_seconds) {}

  Status start() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm here = MPI_COMM_NULL;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here) == MPI_SUCCESS) {
      MPI_Comm_size(here, &ranks_here_);
      MPI_Comm_rank(here, &rank_here_);
      MPI_Comm_free(&here);
    }
    return ranks_ > 1 ? open_watch_line() : Status();
  }

  ~MpiComm() override { leave(Status(StatusCode::kInternal, "ended without a word")); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int ranks_here() const override { return ranks_here_; }
  int rank_here() const override { return rank_here_; }
  Status sum(std::int64_t n, float* values) override { return sum_all(n, values, MPI_FLOAT); }
  Status sum(std::int64_t n, double* values) override { return sum_all(n, values, MPI_DOUBLE); }

  Status broadcast(std::int64_t bytes, void* data, int root) override {
    count_call();
    return in_parts(bytes, [&](std::int64_t at, int count, MPI_Request* request) {
      return MPI_Ibcast(static_cast<char*>(data) + at, count, MPI_BYTE, root, MPI_COMM_WORLD, request);
    });
  }
  Status send(std::int64_t bytes, const void* data, int to) override {
    return in_parts(bytes, [&](std::int64_t at, int count, MPI_Request* request) {
      return MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, to, kTag, MPI_COMM_WORLD,
                       request);
    });
  }
  Status receive(std::int64_t bytes, void* data, int from) override {
    return in_parts(bytes, [&](std::int64_t at, int count, MPI_Request* request) {
      return MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, from, kTag, MPI_COMM_WORLD, request);
    });
  }

  Status check() override { return line_ && line_->broken() ? line_->failure() : Status(); }
  void count_call() override {
    if (line_) line_->count_call();
  }
  Status overdue(double waited_seconds) override {
    return line_ ? line_->overdue(waited_seconds) : Comm::overdue(waited_seconds);
  }
  void set_busy(bool busy) override {
    if (line_) line_->set_busy(busy);
  }

  // MPI_Finalize needs the launcher, which may be ending the run already because of the same signal.
  void leave_together() override {
    if (left_) return;
    left_ = true;
    double nothing = 0;
    const Status met = sum(1, &nothing);
    if (line_ && met.ok()) line_->leave_after_rank_zero(kSecondsToMeet);
  }

  // After a failure MPI_Finalize would wait for a rank that never comes: the launcher cleans up instead.
  void leave(const Status& status) override {
    if (left_) return;
    left_ = true;
    if (line_) line_->leave(status);
    if (status.ok()) MPI_Finalize();
  }

 private:
  Status open_watch_line() {
    std::string address, host;
    if (rank_ == 0) {
      EAGLET_ASSIGN_OR_RETURN(line_, WatchLine::listen(ranks_));
      address = line_->address();
      char name[MPI_MAX_PROCESSOR_NAME] = "";
      int length = 0;
      MPI_Get_processor_name(name, &length);
      host = ranks_here_ == ranks_ ? "127.0.0.1" : std::string(name, static_cast<std::size_t>(length));
    }
    EAGLET_RETURN_IF_ERROR(share_text(*this, 0, &address));
    EAGLET_RETURN_IF_ERROR(share_text(*this, 0, &host));
    if (rank_ == 0) return line_->accept_all(kSecondsToMeet);
    EAGLET_ASSIGN_OR_RETURN(line_, WatchLine::connect(host, address, rank_, ranks_));
    return {};
  }

  template <class T>
  Status sum_all(std::int64_t n, T* values, MPI_Datatype type) {
    count_call();
    return in_parts(n, [&](std::int64_t at, int count, MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, values + at, count, type, MPI_SUM, MPI_COMM_WORLD, request);
    });
  }

  template <class Start>
  Status in_parts(std::int64_t n, const Start& start) {
    for (std::int64_t at = 0; at < n; at += kMostElements) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (const int code = start(at, static_cast<int>(std::min(kMostElements, n - at)), &request);
          code != MPI_SUCCESS)
        return mpi_failure(code, "cannot start");
      EAGLET_RETURN_IF_ERROR(wait(&request));
    }
    return {};
  }

  // A blocking wait would never learn that the other side is gone.
  Status wait(MPI_Request* request) {
    const double begin = monotonic_seconds();
    double patient_since = begin;
    while (true) {
      int done = 0;
      if (const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS)
        return lost_or(mpi_failure(code, "waiting for the other ranks"));
      if (done != 0) return {};
      if (line_ && line_->broken()) return line_->failure();
      if (line_ && line_->missing() && monotonic_seconds() - begin > kSecondsAfterBye)
        return Status(StatusCode::kUnavailable, "another rank has ended before this one", "MPI",
                      "start all ranks with the same command and the same files");
      const double now = monotonic_seconds();
      if (timeout_seconds_ > 0 && now - patient_since > timeout_seconds_) {
        EAGLET_RETURN_IF_ERROR(overdue(now - begin));
        patient_since = monotonic_seconds();
      }
      if (now - begin < kSecondsOfHaste)
        ::sched_yield();
      else
        ::usleep(kSleepMicroseconds);
    }
  }

  // MPI may see a broken connection a moment before the watch line says who it was.
  Status lost_or(Status failure) const {
    for (int i = 0; line_ && !line_->broken() && i < 100; ++i) ::usleep(10000);
    return line_ && line_->broken() ? line_->failure() : failure;
  }

  const double timeout_seconds_;
  int rank_ = 0, ranks_ = 1, ranks_here_ = 1, rank_here_ = 0;
  bool left_ = false;
  std::unique_ptr<WatchLine> line_;
};

}  // namespace

Result<std::unique_ptr<Comm>> start_mpi(double timeout_seconds) {
  int provided = 0;
  // One thread at a time: the one that reduces gradients while backward runs, or the one that trains.
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    return Status(StatusCode::kUnavailable, "MPI could not be started", {},
                  "start eaglet with mpirun, or srun --mpi=pmix");
  if (provided < MPI_THREAD_SERIALIZED)
    return Status(StatusCode::kConfig, "this MPI is not made for programs with threads", {},
                  "use one that offers MPI_THREAD_SERIALIZED (Open MPI of Debian does)");
  auto comm = std::make_unique<MpiComm>(timeout_seconds);
  EAGLET_RETURN_IF_ERROR(comm->start());
  return std::unique_ptr<Comm>(std::move(comm));
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace eaglet

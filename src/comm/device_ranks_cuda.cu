#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "comm/device_ranks.h"
#include "comm/nccl_calls.h"
#include "device/cuda_device.h"
#include "device/cuda_op_times.h"

namespace eaglet {
namespace {

constexpr double kSecondsOfHaste = 200e-6;  // a wait this long only yields, then it sleeps between looks
constexpr unsigned kSleepMicroseconds = 50;
constexpr double kSecondsToName = 1;  // for the host's side to learn which rank it was

class NcclRanks : public DeviceRanks {
 public:
  NcclRanks(Comm& comm, const DeviceRanksOptions& options, const nccl::Functions* calls)
      : comm_(comm), options_(options), calls_(*calls) {}

  Status start(const nccl::UniqueId& id) {
    if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming) != cudaSuccess ||
        cudaEventCreateWithFlags(&done_, cudaEventDisableTiming) != cudaSuccess)
      return Status(StatusCode::kUnavailable, "the device has no stream for the ranks");
    nccl::Config config;
    return settle(calls_.comm_init(&nccl_, comm_.ranks(), id, comm_.rank(), &config),
                  "ncclCommInitRankConfig");
  }

  ~NcclRanks() override {
    if (nccl_ != nullptr) {
      if (wait().ok())
        calls_.comm_destroy(nccl_);
      else
        give_up();
    }
    if (done_ != nullptr) cudaEventDestroy(done_);
    if (ready_ != nullptr) cudaEventDestroy(ready_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Status sum(std::int64_t n, float* values) override { return sum_all(n, values, nccl::kFloat32); }
  Status sum(std::int64_t n, double* values) override { return sum_all(n, values, nccl::kFloat64); }
  Status sum_shares(std::int64_t n_each, const float* values, float* mine) override {
    return together(n_each, "ncclReduceScatter", [&](std::size_t count) {
      return calls_.reduce_scatter(values, mine, count, nccl::kFloat32, nccl::kSum, nccl_, stream_);
    });
  }
  Status gather_shares(std::int64_t n_each, const float* mine, float* all) override {
    return together(n_each, "ncclAllGather", [&](std::size_t count) {
      return calls_.all_gather(mine, all, count, nccl::kFloat32, nccl_, stream_);
    });
  }
  Status broadcast(std::int64_t bytes, void* data, int root) override {
    return together(bytes, "ncclBroadcast", [&](std::size_t count) {
      return calls_.broadcast(data, data, count, nccl::kInt8, root, nccl_, stream_);
    });
  }

  void join() override {
    cuda::note(cudaEventRecord(done_, stream_), "ranks");
    cuda::note(cudaStreamWaitEvent(cuda::stream(), done_, 0), "ranks");
  }

  void abandon() override {
    static_cast<void>(fail(Status(StatusCode::kUnavailable, "this rank has failed")));
  }

  Status wait() override {
    if (!failure_.ok()) return failure_;
    cuda::note(cudaEventRecord(done_, stream_), "ranks");
    return until("waiting for the other ranks' devices", [&](int* error) {
      *error = nccl::kSuccess;
      const cudaError_t state = cudaEventQuery(done_);
      if (state == cudaErrorNotReady) {
        calls_.comm_error(nccl_, error);  // what failed beside the calls
        return *error != nccl::kSuccess && *error != nccl::kInProgress;
      }
      if (state != cudaSuccess) *error = nccl::kUnhandledCudaError;
      return true;
    });
  }

 private:
  Status sum_all(std::int64_t n, void* values, int type) {
    return together(n, "ncclAllReduce", [&](std::size_t count) {
      return calls_.all_reduce(values, values, count, type, nccl::kSum, nccl_, stream_);
    });
  }

  template <class Call>
  Status together(std::int64_t n, const char* name, const Call& call) {
    if (!failure_.ok()) return failure_;
    if (n == 0) return {};
    comm_.count_call();
    cuda::note(cudaEventRecord(ready_, cuda::stream()), name);
    cuda::note(cudaStreamWaitEvent(stream_, ready_, 0), name);
    const cuda::TimedOp timed(OpGroup::kReduction, stream_);
    return settle(call(static_cast<std::size_t>(n)), name);
  }

  // A call that does not wait answers kInProgress and is done some time later.
  Status settle(int result, const char* name) {
    if (result == nccl::kSuccess) return {};
    if (result != nccl::kInProgress) return fail(result, name);
    return until(name, [&](int* error) {
      const int asked = calls_.comm_error(nccl_, error);
      if (asked != nccl::kSuccess) *error = asked;
      return *error != nccl::kInProgress;
    });
  }

  // Asks again and again, and looks whether a rank is gone: NCCL itself may wait for it for ever.
  template <class Done>
  Status until(const char* what, const Done& done) {
    double begin = monotonic_seconds();
    while (true) {
      int error = nccl::kSuccess;
      if (done(&error)) return error == nccl::kSuccess ? Status() : fail(error, what);
      if (Status lost = comm_.check(); !lost.ok()) return fail(std::move(lost));
      const double waited = monotonic_seconds() - begin;
      if (options_.timeout_seconds > 0 && waited > options_.timeout_seconds) {
        if (Status late = comm_.overdue(waited); !late.ok())
          return fail(
              Status(late.code(), std::string(what) + ": " + late.what(), "NCCL",
                     "NCCL_DEBUG=INFO tells more; what was saved is whole: run the same command again"));
        begin = monotonic_seconds();  // it is busy
      }
      if (waited < kSecondsOfHaste)
        ::sched_yield();
      else
        ::usleep(kSleepMicroseconds);
    }
  }

  // NCCL may see a broken connection a moment before the host's side says who it was.
  Status fail(int result, const char* name) {
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < kSecondsToName) {
      if (Status lost = comm_.check(); !lost.ok()) return fail(std::move(lost));
      ::usleep(10000);
    }
    return fail(Status(StatusCode::kUnavailable, std::string(name) + ": " + calls_.error_text(result), "NCCL",
                       "what was saved is whole: mend the cause and run the same command again"));
  }
  Status fail(Status status) {
    static_cast<void>(failure_ = std::move(status));  // nvcc takes it for a result that is ignored
    give_up();
    return failure_;
  }
  void give_up() {
    if (nccl_ != nullptr) calls_.comm_abort(nccl_);  // ends the kernels that wait for other ranks
    nccl_ = nullptr;
  }

  Comm& comm_;
  const DeviceRanksOptions options_;
  const nccl::Functions& calls_;
  nccl::Communicator nccl_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr, done_ = nullptr;
  Status failure_;
};

}  // namespace

// Every rank must have the library before any waits for the others in it.
Result<std::unique_ptr<DeviceRanks>> open_device_ranks(Comm& comm, const DeviceRanksOptions& options) {
  const Result<const nccl::Functions*> calls = nccl::load();
  double without = calls.ok() ? 0 : 1;
  EAGLET_RETURN_IF_ERROR(comm.sum(1, &without));
  if (!calls.ok()) return calls.status();
  if (without > 0)
    return Status(StatusCode::kNotFound,
                  std::to_string(static_cast<int>(without)) + " of the ranks have no NCCL", "",
                  "install it on every machine of the run");
  nccl::UniqueId id = {};
  int made = nccl::kSuccess;
  if (comm.rank() == 0) made = (*calls)->get_unique_id(&id);
  EAGLET_RETURN_IF_ERROR(comm.broadcast(sizeof made, &made, 0));
  if (made != nccl::kSuccess)
    return Status(StatusCode::kUnavailable, std::string("ncclGetUniqueId: ") + (*calls)->error_text(made),
                  "NCCL", "NCCL_DEBUG=INFO tells more; NCCL_SOCKET_IFNAME names the network to use");
  EAGLET_RETURN_IF_ERROR(comm.broadcast(sizeof id, &id, 0));
  auto ranks = std::make_unique<NcclRanks>(comm, options, *calls);
  EAGLET_RETURN_IF_ERROR(ranks->start(id));
  return std::unique_ptr<DeviceRanks>(std::move(ranks));
}

}  // namespace eaglet

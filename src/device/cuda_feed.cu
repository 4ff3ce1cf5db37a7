#include "device/cuda_feed.h"

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "device/cuda_device.h"
#include "device/cuda_op_times.h"

namespace eaglet::cuda {
namespace {

constexpr const char* kWhat = "copying beside the ops";

class Feed : public DeviceFeed {
 public:
  ~Feed() override {
    if (copies_ != nullptr) cudaStreamSynchronize(copies_);
    for (Slot& slot : slots_) {
      note(cudaFree(slot.memory), "cudaFree");  // waits for the ops
      if (slot.filled != nullptr) cudaEventDestroy(slot.filled);
      if (slot.read != nullptr) cudaEventDestroy(slot.read);
    }
    for (Half& half : halves_) {
      note(cudaFreeHost(half.memory), "cudaFreeHost");
      if (half.sent != nullptr) cudaEventDestroy(half.sent);
    }
    if (copies_ != nullptr) cudaStreamDestroy(copies_);
  }

  cudaError_t make(std::uint64_t slot_bytes) {
    cudaError_t error = cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking);
    const auto well = [&](cudaError_t now) { error = error == cudaSuccess ? now : error; };
    for (Slot& slot : slots_) {
      well(cudaMalloc(&slot.memory, slot_bytes));
      well(cudaEventCreateWithFlags(&slot.filled, cudaEventDisableTiming));
      well(cudaEventCreateWithFlags(&slot.read, cudaEventDisableTiming));
    }
    for (Half& half : halves_) {
      well(cudaMallocHost(&half.memory, kHalfBytes));
      well(cudaEventCreateWithFlags(&half.sent, cudaEventDisableTiming));
    }
    return error;
  }

  void open_slot(int slot) override { note(cudaStreamWaitEvent(copies_, at(slot).read, 0), kWhat); }
  void* half() override {
    half_ = 1 - half_;
    note(cudaEventSynchronize(halves_[half_].sent), kWhat);
    return halves_[half_].memory;
  }
  void send_half(int slot, std::uint64_t to, std::uint64_t bytes) override {
    {
      const TimedOp timed(OpGroup::kStates, copies_);
      note(cudaMemcpyAsync(static_cast<char*>(at(slot).memory) + to, halves_[half_].memory, bytes,
                           cudaMemcpyHostToDevice, copies_),
           kWhat);
    }
    note(cudaEventRecord(halves_[half_].sent, copies_), kWhat);
  }
  void close_slot(int slot) override { note(cudaEventRecord(at(slot).filled, copies_), kWhat); }
  const void* use(int slot) override {
    const TimedOp timed(OpGroup::kStatesWait);
    note(cudaStreamWaitEvent(stream(), at(slot).filled, 0), kWhat);
    return at(slot).memory;
  }
  void done(int slot) override { note(cudaEventRecord(at(slot).read, stream()), kWhat); }

 private:
  struct Slot {
    void* memory = nullptr;
    cudaEvent_t filled = nullptr;  // on the copies' stream
    cudaEvent_t read = nullptr;    // on that of the ops
  };
  struct Half {
    void* memory = nullptr;
    cudaEvent_t sent = nullptr;
  };
  Slot& at(int slot) { return slots_[slot]; }

  cudaStream_t copies_ = nullptr;
  Slot slots_[kSlots];
  Half halves_[2];
  int half_ = 0;
};

}  // namespace

Result<std::unique_ptr<DeviceFeed>> open_feed(std::uint64_t slot_bytes) {
  auto feed = std::make_unique<Feed>();
  const cudaError_t error = feed->make(slot_bytes);
  if (error == cudaSuccess) return std::unique_ptr<DeviceFeed>(std::move(feed));
  cudaGetLastError();  // it is not sticky: the caller may ask for less
  return Status(error == cudaErrorMemoryAllocation ? StatusCode::kNoSpace : StatusCode::kUnavailable,
                "no memory for states on their way to the device, twice " + std::to_string(slot_bytes >> 20) +
                    " MiB: " + cudaGetErrorString(error),
                "", "make max_seq_len smaller, or close what else uses the device");
}

}  // namespace eaglet::cuda

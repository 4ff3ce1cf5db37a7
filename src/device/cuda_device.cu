#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "device/accelerator.h"
#include "device/cuda_device.h"
#include "device/cuda_feed.h"
#include "device/cuda_op_times.h"
#include "device/cuda_product.h"
#include "device/host_copy.h"
#include "device/place.h"

namespace eaglet {
namespace cuda {
namespace {

constexpr std::uint64_t kStagingBytes = std::uint64_t{8} << 20;

// What is open; one device a process.
struct Open {
  cudaStream_t stream = nullptr;
  cudaEvent_t staged[2] = {nullptr, nullptr};  // the copy out of that half is done
  char* staging[2] = {nullptr, nullptr};       // pinned
  int half = 0;                                // filled next
  void *scratch = nullptr, *host_scratch = nullptr;
  std::uint64_t scratch_bytes = 0;
  std::string failure;
};
Open* open = nullptr;

Status failed(cudaError_t error, const std::string& what) {
  return Status(StatusCode::kUnavailable, what + ": " + cudaGetErrorString(error), "",
                "see that the device is there and free: nvidia-smi");
}

template <class Create>
bool make(cudaError_t* error, const Create& create) {
  if (*error == cudaSuccess) *error = create();
  return *error == cudaSuccess;
}

cudaError_t make_open(Open* o) {
  cudaError_t error = cudaSuccess;
  make(&error, [&] { return cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking); });
  for (int half = 0; half < 2; ++half) {
    make(&error, [&] { return cudaEventCreateWithFlags(&o->staged[half], cudaEventDisableTiming); });
    void* memory = nullptr;
    if (make(&error, [&] { return cudaMallocHost(&memory, kStagingBytes); }))
      o->staging[half] = static_cast<char*>(memory);
  }
  make(&error, [&] { return cudaMallocHost(&o->host_scratch, kHostScratchBytes); });
  return error;
}

void unmake(Open* o) {
  if (o->stream != nullptr) cudaStreamSynchronize(o->stream);
  forget_device_block(o->scratch);
  cudaFree(o->scratch);
  cudaFreeHost(o->host_scratch);
  for (int half = 0; half < 2; ++half) {
    cudaFreeHost(o->staging[half]);
    if (o->staged[half] != nullptr) cudaEventDestroy(o->staged[half]);
  }
  if (o->stream != nullptr) cudaStreamDestroy(o->stream);
}

class CudaDevice : public Accelerator {
 public:
  CudaDevice(std::string name, std::uint64_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  ~CudaDevice() override {
    forget_op_times();
    close_products();
    unmake(&open_);
    open = nullptr;
  }
  cudaError_t start() {
    open = &open_;
    return make_open(&open_);
  }

  const std::string& name() const override { return name_; }
  std::uint64_t memory_bytes() const override { return bytes_; }

  Result<void*> take(std::uint64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is not sticky: the caller may ask for less
      return Status(StatusCode::kNoSpace,
                    "the device has no " + std::to_string(bytes >> 20) + " MiB of memory left", name_,
                    "make max_seq_len smaller, or close what else uses the device");
    }
    if (error != cudaSuccess) return failed(error, "memory of the device");
    note_device_block(memory, bytes);
    return memory;
  }
  void give_back(void* memory) override {
    forget_device_block(memory);
    note(cudaStreamSynchronize(open_.stream), "cudaStreamSynchronize");
    note(cudaFree(memory), "cudaFree");
  }
  void to_device(void* to, const void* from, std::uint64_t bytes) override { copy_in(to, from, bytes); }
  void to_host(void* to, const void* from, std::uint64_t bytes) override {
    for (std::uint64_t done = 0; done < bytes; done += kStagingBytes) {
      const std::uint64_t part = std::min(kStagingBytes, bytes - done);
      note(cudaEventSynchronize(open_.staged[0]), "copying from the device");
      {
        const TimedOp timed(OpGroup::kCopies);
        note(cudaMemcpyAsync(open_.staging[0], static_cast<const char*>(from) + done, part,
                             cudaMemcpyDeviceToHost, open_.stream),
             "copying from the device");
      }
      note(cudaStreamSynchronize(open_.stream), "copying from the device");
      std::memcpy(static_cast<char*>(to) + done, open_.staging[0], part);
    }
  }
  bool idle() override {
    const cudaError_t error = cudaStreamQuery(open_.stream);
    if (error != cudaErrorNotReady) note(error, "asking the device");
    return error != cudaErrorNotReady;
  }
  Result<std::unique_ptr<DeviceFeed>> open_feed(std::uint64_t slot_bytes) override {
    return cuda::open_feed(slot_bytes);
  }
  bool time_ops(bool on) override { return cuda::time_ops(on); }
  OpTimes take_op_times() override { return cuda::take_op_times(); }
  Status wait() override {
    note(cudaStreamSynchronize(open_.stream), "waiting for the device");
    return check();
  }
  Status check() override {
    if (open_.failure.empty()) return {};
    Status status(StatusCode::kInternal, "the device failed: " + open_.failure, name_,
                  "nothing on the device can be trusted now: start again from the last checkpoint");
    open_.failure.clear();
    return status;
  }

 private:
  const std::string name_;
  const std::uint64_t bytes_;
  Open open_;
};

}  // namespace

cudaStream_t stream() {
  return open->stream;
}
void note(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    note_text(std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}
void note_text(const std::string& failure) {
  if (open->failure.empty()) open->failure = failure;
}

void* op_scratch(std::uint64_t bytes) {
  if (bytes <= open->scratch_bytes) return open->scratch;
  forget_device_block(open->scratch);
  note(cudaFree(open->scratch), "cudaFree");  // waits for the ops that use it
  open->scratch = nullptr;
  const cudaError_t error = cudaMalloc(&open->scratch, bytes);
  note(error, "scratch memory of an op");
  open->scratch_bytes = error == cudaSuccess ? bytes : 0;
  if (error == cudaSuccess) note_device_block(open->scratch, bytes);  // ops call ops on it
  return open->scratch;
}
void* host_scratch() {
  return open->host_scratch;
}

// The host's memory may be pageable, so it goes through two pinned halves in turn: while one is copied out,
// the other is filled.
void copy_in(void* to, const void* from, std::uint64_t bytes) {
  const char* const what = "copying to the device";
  for (std::uint64_t done = 0; done < bytes; done += kStagingBytes) {
    const std::uint64_t part = std::min(kStagingBytes, bytes - done);
    char* half = open->staging[open->half];
    note(cudaEventSynchronize(open->staged[open->half]), what);
    copy_with_threads(half, static_cast<const char*>(from) + done, part);
    const TimedOp timed(OpGroup::kCopies);
    note(cudaMemcpyAsync(static_cast<char*>(to) + done, half, part, cudaMemcpyHostToDevice, open->stream),
         what);
    note(cudaEventRecord(open->staged[open->half], open->stream), what);
    open->half = 1 - open->half;
  }
}

}  // namespace cuda

int cuda_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_device_id(int number) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, number) != cudaSuccess) return "";
  constexpr const char* kDigits = "0123456789abcdef";
  std::string id;
  for (const char byte : properties.uuid.bytes) {
    id += kDigits[static_cast<unsigned char>(byte) >> 4];
    id += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return id;
}

Result<std::unique_ptr<Accelerator>> open_cuda(int number) {
  if (cuda::open != nullptr)
    return Status(StatusCode::kUnavailable, "a device is open already", "", "use one device a process");
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cuda::failed(error, "no CUDA device can be used");
  if (number < 0 || number >= count)
    return Status(
        StatusCode::kUnavailable,
        "there is no CUDA device " + std::to_string(number) + ": there are " + std::to_string(count), "",
        "numbers start at 0: nvidia-smi");
  error = cudaSetDevice(number);
  if (error != cudaSuccess) return cuda::failed(error, "CUDA device " + std::to_string(number));
  cudaDeviceProp properties;
  error = cudaGetDeviceProperties(&properties, number);
  if (error != cudaSuccess) return cuda::failed(error, "CUDA device " + std::to_string(number));
  auto device = std::make_unique<cuda::CudaDevice>(properties.name, properties.totalGlobalMem);
  error = device->start();
  if (error != cudaSuccess) return cuda::failed(error, "CUDA device " + std::to_string(number));
  EAGLET_RETURN_IF_ERROR(cuda::open_products());
  return std::unique_ptr<Accelerator>(std::move(device));
}

}  // namespace eaglet

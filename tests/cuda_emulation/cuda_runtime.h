#pragma once

// What .cu files of ours use of CUDA, for the host's compiler: the same names, answered by the emulation
// (docs/gpu.md). Found in place of the toolkit's header of this name because of the include path.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "block.h"
#include "tensor_core.h"

// ---- the language

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __grid_constant__

/// Shared memory is asked for by place, so that each array has guards of its own (device/cuda_kernel.h).
#define EAGLET_SHARED_ARRAY(type, name, count) \
  type* const name = static_cast<type*>(::emulation::shared_array(__FILE__, __LINE__, sizeof(type) * (count)))
#define EAGLET_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(::emulation::dynamic_shared())
#define EAGLET_NAME_LAUNCH(name) ::emulation::name_next_launch(name)

using uint3 = emulation::Index3;
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};

// Of the thread that runs now: set at every change.
extern emulation::Index3 &threadIdx, &blockIdx, &blockDim, &gridDim;
constexpr int warpSize = emulation::kLanes;

#define __syncthreads() ::emulation::block_barrier(__LINE__)
#define __syncthreads_count(predicate) ::emulation::block_barrier_count(__LINE__, (predicate) != 0)
#define __syncthreads_or(predicate) (::emulation::block_barrier_count(__LINE__, (predicate) != 0) > 0)
#define __syncthreads_and(predicate) (::emulation::block_barrier_count(__LINE__, (predicate) == 0) == 0)

namespace emulation {

void name_next_launch(const char* name);

template <class T>
T shuffle(unsigned mask, T value, int source, const char* what) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const std::uint64_t* all = warp_exchange(mask, what, bits);
  if (source < 0 || source >= kLanes) return value;
  if ((mask >> source & 1u) == 0) source = lane();  // undefined on a device; the value stays what it was
  T result;
  std::memcpy(&result, &all[source], sizeof result);
  return result;
}
unsigned ballot(unsigned mask, bool predicate, const char* what);

}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return emulation::shuffle(mask, value, source, "__shfl_sync");
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emulation::shuffle(mask, value, emulation::lane() ^ bits, "__shfl_xor_sync");
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  return emulation::shuffle(mask, value, emulation::lane() + static_cast<int>(by), "__shfl_down_sync");
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  return emulation::shuffle(mask, value, emulation::lane() - static_cast<int>(by), "__shfl_up_sync");
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return emulation::ballot(mask, predicate != 0, "__ballot_sync");
}
inline int __any_sync(unsigned mask, int predicate) {
  return emulation::ballot(mask, predicate != 0, "__any_sync") != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return emulation::ballot(mask, predicate == 0, "__all_sync") == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulation::warp_exchange(mask, "__syncwarp", 0);
}

// One flow of control at a time, and none is changed between reading and writing: plain code is atomic.
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}
template <class T>
T atomicMax(T* to, T value) {
  const T before = *to;
  if (value > before) *to = value;
  return before;
}
template <class T>
T atomicCAS(T* to, T expected, T value) {
  const T before = *to;
  if (before == expected) *to = value;
  return before;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
inline void __threadfence() {}
using std::max;
using std::min;
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}

// ---- the runtime; numbers as CUDA has them

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaLaunchAttribute {};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaMalloc(void** to, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** to, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

namespace emulation {

/// Work that no kernel does, in the stream's order; it takes so long on the device.
cudaError_t queue_work(cudaStream_t stream, const char* name, double seconds, std::function<void()> work);
/// The same, once ready() holds, which the device asks again and again.
cudaError_t queue_work_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> work);
/// For ready(): device memory may be read in body().
void with_memory_open(const std::function<void()>& body);
/// An argument of a kernel, as bytes.
struct Argument {
  const void* at = nullptr;
  std::size_t bytes = 0;
  bool is_pointer = false;
};
/// Checks the shape, and every pointer argument of the kernel: it has to lie in live device memory, or be
/// nullptr. What looks like an address within a structure must not be one of the host's. Then queues it on
/// the stream.
cudaError_t queue_launch(const void* kernel, const cudaLaunchConfig_t& config, const Argument* arguments,
                         int num_arguments, std::function<void()> thread);

}  // namespace emulation

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  const auto check = [&](const auto&... value) {
    const emulation::Argument as_bytes[] = {
        {&value, sizeof value, std::is_pointer_v<std::remove_cvref_t<decltype(value)>>}..., {}};
    return emulation::queue_launch(reinterpret_cast<const void*>(kernel), *config, as_bytes,
                                   static_cast<int>(sizeof...(value)),
                                   [kernel, values] { std::apply(kernel, values); });
  };
  return std::apply(check, values);
}

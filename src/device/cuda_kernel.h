#pragma once

// For .cu files only: what kernels are written with. Everything else in them is CUDA's own language.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

// The emulation (tests/cuda_emulation) brings its own forms of these.
#ifndef EAGLET_SHARED_ARRAY
/// type name[count] in the memory of the block.
#define EAGLET_SHARED_ARRAY(type, name, count) __shared__ type name[count]
/// name: the launch's dynamic shared memory, aligned to 16 bytes.
#define EAGLET_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char eaglet_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(eaglet_dynamic_shared)
#define EAGLET_NAME_LAUNCH(name)
#endif

namespace eaglet::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;

/// Sum over the lanes of a warp, the same in every lane; the order of the additions is fixed.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kWholeWarp, value, bits);
  return value;
}

/// Sum over a block of kThreads threads, the same in every thread. `partial` is shared memory of one T a
/// warp, free again when the function returns.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value, T* partial) {
  static_assert(kThreads % kWarp == 0 && kThreads <= kWarp * kWarp);
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = threadIdx.x % kWarp < kThreads / kWarp ? partial[threadIdx.x % kWarp] : T(0);
  sum = warp_sum(sum);
  __syncthreads();  // partial may be written again from here on
  return sum;
}

/// The largest of some values and where it is; of equal ones the first.
struct Best {
  float value;
  std::int32_t at;
};
__device__ __forceinline__ Best no_best() {
  return {-INFINITY, INT32_MAX};
}
__device__ __forceinline__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
}
__device__ __forceinline__ Best warp_best(Best mine) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2)
    mine = better(
        mine, {__shfl_xor_sync(kWholeWarp, mine.value, bits), __shfl_xor_sync(kWholeWarp, mine.at, bits)});
  return mine;
}
/// Over a block, as block_sum().
template <int kThreads>
__device__ __forceinline__ Best block_best(Best mine, Best* partial) {
  static_assert(kThreads % kWarp == 0 && kThreads <= kWarp * kWarp);
  mine = warp_best(mine);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Best best = threadIdx.x % kWarp < kThreads / kWarp ? partial[threadIdx.x % kWarp] : no_best();
  best = warp_best(best);
  __syncthreads();
  return best;
}

}  // namespace eaglet::cuda

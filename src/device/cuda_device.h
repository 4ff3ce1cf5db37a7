#pragma once

// For .cu files only: the open CUDA device as ops see it.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <utility>

#include "device/cuda_kernel.h"

namespace eaglet::cuda {

/// The stream that all ops run on, one after another.
cudaStream_t stream();
/// Keeps the first failure for Accelerator::wait().
void note(cudaError_t error, const char* what);
void note_text(const std::string& failure);
/// Memory on the device that belongs to one op until the next one runs; it grows to what the largest op
/// wants. nullptr, which is noted, when the device has no more.
void* op_scratch(std::uint64_t bytes);
/// Pinned memory of the host, of at least kHostScratchBytes, for what an op brings back.
inline constexpr std::uint64_t kHostScratchBytes = 64 << 10;
void* host_scratch();
/// Accelerator::to_device(): `from` may be changed when it returns.
void copy_in(void* to, const void* from, std::uint64_t bytes);

/// kernel<<<grid, threads, shared_bytes>>>(arguments...) on stream(). `name` is told when it fails. The grid
/// must not be empty: callers return before when there is nothing to do.
template <class... Parameters, class... Arguments>
void launch_with_shared(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                        std::size_t shared_bytes, Arguments&&... arguments) {
  constexpr std::size_t kUnasked = 48 << 10;  // what every kernel may have
  EAGLET_NAME_LAUNCH(name);
  if (shared_bytes > kUnasked)
    note(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
         name);
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream();
  note(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
            Arguments&&... arguments) {
  launch_with_shared(name, kernel, grid, threads, 0, std::forward<Arguments>(arguments)...);
}

/// Blocks that n items need at `each` a block, at most `most`: kernels walk on by whole grids.
inline unsigned blocks_for(std::int64_t n, std::int64_t each, std::int64_t most = 4096) {
  const std::int64_t blocks = (n + each - 1) / each;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace eaglet::cuda

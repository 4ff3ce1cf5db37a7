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
/// At least `bytes` of memory on the device, for one op until the next one runs; and as much that the host
/// reads. nullptr when there is no more.
struct OpScratch {
  void* device = nullptr;
  void* host = nullptr;
};
OpScratch op_scratch(std::uint64_t bytes);

/// kernel<<<grid, threads>>>(arguments...) on stream(). `name` is told when it fails. The grid must not be
/// empty: callers return before when there is nothing to do.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
            Arguments&&... arguments) {
  EAGLET_NAME_LAUNCH(name);
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = threads;
  config.stream = stream();
  note(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

/// Blocks that n items need at `each` a block, at most `most`: kernels walk on by whole grids.
inline unsigned blocks_for(std::int64_t n, std::int64_t each, std::int64_t most = 4096) {
  const std::int64_t blocks = (n + each - 1) / each;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace eaglet::cuda

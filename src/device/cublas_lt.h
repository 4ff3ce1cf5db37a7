#pragma once

// For .cu files only: the few calls of cuBLASLt that we make, declared here after its C interface, so that
// neither its header (a package of 400 MB) is needed to build nor the library to start. cublas_lt_check.cu
// holds the numbers to the header where there is one.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace eaglet::cublas_lt {

// Numbers of its enumerations.
inline constexpr int kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15;
inline constexpr int kF32 = 0, kBf16 = 14;              // cudaDataType
inline constexpr int kCompute32F = 68;                  // cublasComputeType_t: fp32 sums, no TF32
inline constexpr int kNoTranspose = 0, kTranspose = 1;  // cublasOperation_t
inline constexpr int kDescTransA = 3, kDescTransB = 4;
inline constexpr int kPreferMaxWorkspaceBytes = 1, kPreferAlignmentA = 5, kPreferAlignmentB = 6,
                     kPreferAlignmentC = 7, kPreferAlignmentD = 8;

struct Algo {
  std::uint64_t data[8];
};
struct Heuristic {
  Algo algo;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

/// Handles, descriptors, layouts and preferences are opaque pointers. Layouts are column-major.
struct Functions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*desc_create)(void** desc, int compute_type, int scale_type);
  int (*desc_destroy)(void* desc);
  int (*desc_set)(void* desc, int attribute, const void* value, std::size_t bytes);
  int (*layout_create)(void** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t ld);
  int (*layout_destroy)(void* layout);
  int (*preference_create)(void** preference);
  int (*preference_destroy)(void* preference);
  int (*preference_set)(void* preference, int attribute, const void* value, std::size_t bytes);
  int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                   Heuristic* results, int* found);
  int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const Algo* algo, void* workspace, std::size_t workspace_bytes, cudaStream_t stream);
};

/// The library's functions, looked up once. kNotFound, with what to do, when the machine has none.
/// (cublas_lt_load.cu; the emulation has its own.)
Result<const Functions*> load();

}  // namespace eaglet::cublas_lt

// Holds device/cublas_lt.h to the library's own header, where one is installed.

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include "device/cublas_lt.h"

namespace eaglet::cublas_lt {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS && kInvalidValue == CUBLAS_STATUS_INVALID_VALUE &&
              kExecutionFailed == CUBLAS_STATUS_EXECUTION_FAILED &&
              kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kF32 == CUDA_R_32F && kBf16 == CUDA_R_16BF && kCompute32F == CUBLAS_COMPUTE_32F);
static_assert(kNoTranspose == CUBLAS_OP_N && kTranspose == CUBLAS_OP_T);
static_assert(kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA && kDescTransB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(kPreferMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              kPreferAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              kPreferAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              kPreferAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              kPreferAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(Heuristic, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int));

}  // namespace eaglet::cublas_lt
#endif

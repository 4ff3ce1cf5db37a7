#pragma once

#include <cstdint>

namespace eaglet {

enum class Transpose { kNo, kYes };

/// C [m,n] = alpha * op(A) [m,k] * op(B) [k,n] + beta * C, fp32, row-major; lda, ldb, ldc are the distances
/// in floats between stored rows. beta = 0 overwrites (C may hold NaN). m, n or k of 0 are fine. Runs on
/// num_threads() threads, or on one inside a parallel region; on the device when C lies there
/// (device/place.h). Same shapes and thread count: same bits.
void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
          float* c, std::int64_t ldc);

/// What gemm() calls for device memory; set by the open device, nullptr when it closes.
void set_device_gemm(decltype(&gemm) device_gemm);

}  // namespace eaglet

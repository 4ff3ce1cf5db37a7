#pragma once

#include <cstdint>

#include "device/gemm.h"

namespace eaglet {

// A weight W [out, in] as stored, possibly a column range of a wider matrix: `ldw` is the stored row length.

/// y [n, out] = x [n, in] W^T (+ y when accumulate)
inline void linear(std::int64_t n, std::int64_t out, std::int64_t in, const float* x, const float* w,
                   std::int64_t ldw, bool accumulate, float* y) {
  gemm(Transpose::kNo, Transpose::kYes, n, out, in, 1.0f, x, in, w, ldw, accumulate ? 1.0f : 0.0f, y, out);
}
/// dx [n, in] = dy [n, out] W (+ dx when accumulate)
inline void linear_backward_input(std::int64_t n, std::int64_t out, std::int64_t in, const float* dy,
                                  const float* w, std::int64_t ldw, bool accumulate, float* dx) {
  gemm(Transpose::kNo, Transpose::kNo, n, in, out, 1.0f, dy, out, w, ldw, accumulate ? 1.0f : 0.0f, dx, in);
}
/// dW [out, in] += dy^T [out, n] x [n, in]
inline void linear_backward_weight(std::int64_t n, std::int64_t out, std::int64_t in, const float* dy,
                                   const float* x, std::int64_t ldw, float* dw) {
  if (n == 0) return;
  gemm(Transpose::kYes, Transpose::kNo, out, in, n, 1.0f, dy, out, x, in, 1.0f, dw, ldw);
}

}  // namespace eaglet

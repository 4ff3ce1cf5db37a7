#pragma once

#include <cstdint>

namespace eaglet {

/// RMS norm of rows: y = x * inv * w with inv = 1 / sqrt(mean(x^2) + eps).   (docs/math/rms_norm.md)
///   x [n, width] with row distance ldx, w [width], y [n, width] with row distance ldy, inv [n] (kept for
///   backward).
/// y may be x. Reference: rms_norm_ref.h.
void rms_norm(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx, const float* w,
              double eps, float* y, std::int64_t ldy, float* inv);

/// Backward of rms_norm: dx = inv * (dy*w) - x * inv^3 * mean(dy*w*x), dw += sum over rows of dy * x * inv.
///   dx [n, width] is added to when `accumulate`, else overwritten. dw may be nullptr (a frozen weight).
///   dx may be nullptr (nothing below needs it). `partial` is scratch of num_threads() * width floats.
/// Row distances are width. Same bits for the same thread count.
void rms_norm_backward(std::int64_t n, std::int64_t width, const float* x, const float* w, const float* inv,
                       const float* dy, bool accumulate, float* dx, float* dw, float* partial);

/// The weight's part of it alone, for rows that lie ldx and lddy apart: dw [width] += sum over rows of
/// dy * x * inv. Same bits for any thread count.
void rms_norm_weight_backward(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx,
                              const float* inv, const float* dy, std::int64_t lddy, float* dw);

}  // namespace eaglet

#pragma once

#include <cstdint>

namespace eaglet {

// Loops over contiguous fp32 arrays, vectorised for the CPU at hand (Highway, chosen at run time). The
// building blocks of every op of this room. Sums run in a fixed lane order: same n, same CPU kind, same bits.
// Reference: vector_math_ref.h.

/// Largest value; -inf for n = 0. NaN in x: the result is unspecified, callers check sums.
float vmax(const float* x, std::int64_t n);
/// Index of the first largest value; 0 for n = 0.
std::int64_t vargmax(const float* x, std::int64_t n);
/// y = exp(scale * x - shift); returns the sum of y. x may be y.
float vexp_sum(const float* x, std::int64_t n, float scale, float shift, float* y);
float vdot(const float* x, const float* y, std::int64_t n);
float vsum_squares(const float* x, std::int64_t n);
/// y += a * x
void vaxpy(float a, const float* x, std::int64_t n, float* y);
/// y = a * x + b * y
void vaxpby(float a, const float* x, float b, std::int64_t n, float* y);
/// y [group, n] += w [group, k] * rows [k, n], for few sums: w and y have rows ldw and ldy apart. Rows are
/// fp32 or bf16.
void vadd_rows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw, const float* rows,
               std::int64_t n, float* y, std::int64_t ldy);
void vadd_rows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw,
               const std::uint16_t* rows, std::int64_t n, float* y, std::int64_t ldy);
/// y = a * x * w   (one row of an RMS norm)
void vscale_by(float a, const float* x, const float* w, std::int64_t n, float* y);
/// sum of x * y * w
float vdot3(const float* x, const float* y, const float* w, std::int64_t n);
/// y = silu(g) * u
void vsilu_mul(const float* g, const float* u, std::int64_t n, float* y);
/// From dy: dg = dy * u * silu'(g), du = dy * silu(g), and y = silu(g) * u again. dg may be g, du may be u.
void vsilu_mul_backward(const float* g, const float* u, const float* dy, std::int64_t n, float* dg, float* du,
                        float* y);
/// q *= scale; returns sum min(p, q) and sum of q where q < p.
struct Overlap {
  float overlap = 0, mass_below = 0;
};
Overlap voverlap(const float* p, float scale, std::int64_t n, float* q);
/// y = a * q + b * p, plus c * q where q < p. y may be p or q.
void voverlap_mix(float a, const float* q, float b, const float* p, float c, std::int64_t n, float* y);
/// y += w * q * (z - t - shift)
void vadd_log_ratio(float w, const float* q, const float* z, const float* t, float shift, std::int64_t n,
                    float* y);
/// Sums of q * log m and p * log m with m = (p + q) / 2, taken as at least 1e-38.
struct LogMean {
  float by_q = 0, by_p = 0;
};
LogMean vlog_mean(const float* p, const float* q, std::int64_t n);
/// y += w * q * (z - log m - shift)
void vadd_log_mean(float w, const float* q, const float* z, const float* p, float shift, std::int64_t n,
                   float* y);
/// s = scale * p * (s - delta)   (softmax backward of one row, s holds dP)
void vsoftmax_backward(const float* p, float scale, float delta, std::int64_t n, float* s);

}  // namespace eaglet

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
/// y = a * x * w   (one row of an RMS norm)
void vscale_by(float a, const float* x, const float* w, std::int64_t n, float* y);
/// sum of x * y * w
float vdot3(const float* x, const float* y, const float* w, std::int64_t n);
/// y = silu(g) * u
void vsilu_mul(const float* g, const float* u, std::int64_t n, float* y);
/// From dy: dg = dy * u * silu'(g), du = dy * silu(g), and y = silu(g) * u again. dg may be g, du may be u.
void vsilu_mul_backward(const float* g, const float* u, const float* dy, std::int64_t n, float* dg, float* du,
                        float* y);
/// s = scale * p * (s - delta)   (softmax backward of one row, s holds dP)
void vsoftmax_backward(const float* p, float scale, float delta, std::int64_t n, float* s);

}  // namespace eaglet

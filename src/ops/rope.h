#pragma once

#include <cstdint>

namespace eaglet {

/// cos and sin [n, half] of position * inv_freq, times `scaling` (yarn's attention factor). positions [n].
void rope_angles(std::int64_t n, const std::int32_t* positions, std::int64_t half, const float* inv_freq,
                 float scaling, float* cos, float* sin);

/// Rotates x [n, heads, 2*half] in place, halves paired as in transformers (x_i with x_{i+half}):
///   a' = a*cos - b*sin, b' = b*cos + a*sin.  cos, sin [n, half] from rope_angles.
void rope_rotate(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos, const float* sin,
                 float* x);
/// Backward of rope_rotate, in place on the gradient: the rotation by the negative angle (same scaling).
void rope_rotate_backward(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos,
                          const float* sin, float* dx);

}  // namespace eaglet

#pragma once

#include <cstdint>

namespace eaglet {

/// act = silu(gate) * up, all [n, width].
void swiglu(std::int64_t n, std::int64_t width, const float* gate, const float* up, float* act);
/// Backward, in place: gate becomes d gate, up becomes d up, and d_act (the gradient of act) becomes act
/// itself, which the caller needs for the next weight gradient. Saves three buffers of [n, width].
void swiglu_backward(std::int64_t n, std::int64_t width, float* gate, float* up, float* d_act);

}  // namespace eaglet

#pragma once

// Host versions of device/cuda_tensor_core.h's instructions, for kernels; contracts are there.

#include <cstddef>
#include <cstdint>

namespace emulation {

void multiply_tile(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float (&c)[4]);
void load_matrices(const void* row, std::uint32_t (&r)[4], bool turned);
/// Copies at once or when it is waited for, as the seed says for each block: both may happen on a device.
void copy_async(void* to, const void* from, std::size_t bytes, bool wanted);
void wait_for_copies();
std::uint32_t pack_bf16(float low, float high);
float bits_as_float(std::uint32_t bits);

}  // namespace emulation

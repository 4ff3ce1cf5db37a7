#pragma once

#include <cstdint>

#include "device/gemm.h"

namespace eaglet {

/// What LinearWeight needs of a device to multiply in bf16. All in order with the ops; failures are told by
/// Accelerator::wait().
struct DeviceProducts {
  /// Memory of the device; nullptr when it has no more.
  void* (*take)(std::uint64_t bytes) = nullptr;
  void (*give_back)(void* memory) = nullptr;
  /// to [rows, width] = from, whose rows are ld apart, rounded to bf16.
  void (*round)(std::int64_t rows, std::int64_t width, const float* from, std::int64_t ld,
                std::uint16_t* to) = nullptr;
  /// c [m,n] = op(a) op(b) + beta * c of bf16 operands; as gemm().
  void (*multiply)(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                   std::int64_t k, const std::uint16_t* a, std::int64_t lda, const std::uint16_t* b,
                   std::int64_t ldb, float beta, float* c, std::int64_t ldc) = nullptr;
};

/// Set by the open device, nullptr when it closes.
void set_device_products(const DeviceProducts* products);
const DeviceProducts* device_products();

}  // namespace eaglet

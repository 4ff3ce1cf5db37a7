#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/compute_type.h"
#include "device/gemm.h"

namespace eaglet::cuda {

/// A matrix in device memory, row-major with rows `ld` elements apart: fp32, or bf16 as its upper halves.
struct Operand {
  const void* data = nullptr;
  ComputeType type = ComputeType::kF32;
  std::int64_t ld = 0;
  Transpose transposed = Transpose::kNo;
};

/// c [m,n] = alpha * op(a) [m,k] * op(b) [k,n] + beta * c, in cuBLASLt. Both operands of one type; c and all
/// sums are fp32 (fp32 operands are not cut to TF32). beta 0 overwrites. Any size may be 0. In order with the
/// ops; same shapes: same bits.
void product(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Operand& a, const Operand& b,
             float beta, float* c, std::int64_t ldc);

/// Finds the library and takes its workspace; for open_cuda().
Status open_products();
void close_products();

}  // namespace eaglet::cuda

#pragma once

// For .cu files only: tensor cores and what feeds them, compute capability 8.0 and newer. Each function is
// one instruction of the device; the emulation (tests/cuda_emulation/tensor_core.h) has a host version of
// each. Registers that hold bf16 hold two, the one of the lower column in the lower half.

#include "device/cuda_kernel.h"

#ifdef __CUDACC__
#define EAGLET_UNROLL _Pragma("unroll")
#define EAGLET_UNROLL_TWO _Pragma("unroll 2")  // where registers for addresses would spill
#else
#define EAGLET_UNROLL
#define EAGLET_UNROLL_TWO
#endif

namespace eaglet::cuda {

/// c [16,8] += a [16,16] b [16,8], bf16 with fp32 sums, by a whole warp. With g = lane / 4 and t = lane % 4:
///   a[0]: row g, columns 2t, 2t+1      a[1]: row g+8      a[2]: row g, columns 2t+8, 2t+9      a[3]: row g+8
///   b0: rows 2t, 2t+1 of column g      b1: rows 2t+8, 2t+9
///   c[0], c[1]: row g, columns 2t, 2t+1                   c[2], c[3]: row g+8
__device__ __forceinline__ void multiply_tile(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                              float (&c)[4]) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  ::emulation::multiply_tile(a, b0, b1, c);
#endif
}

/// Four matrices of 8 rows of 16 bytes from shared memory. Lanes 8i..8i+7 name the rows of matrix i, aligned
/// to 16 bytes; r[i]: of matrix i, row lane / 4, columns 2 (lane % 4) and the next.
__device__ __forceinline__ void load_matrices(const void* row, std::uint32_t (&r)[4]) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  ::emulation::load_matrices(row, r, false);
#endif
}

/// The same of the turned matrices: r[i]: of matrix i, column lane / 4, rows 2 (lane % 4) and the next.
__device__ __forceinline__ void load_matrices_turned(const void* row, std::uint32_t (&r)[4]) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  ::emulation::load_matrices(row, r, true);
#endif
}

/// 16 bytes to shared memory, zeros where not `wanted`, both aligned to 16; done when wait_for_copies() of
/// this thread says so, and seen by others after a barrier.
__device__ __forceinline__ void copy_16_async(void* to, const void* from, bool wanted) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
#else
  ::emulation::copy_async(to, from, 16, wanted);
#endif
}
/// Waits for all copies that this thread has begun.
__device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;\n" ::: "memory");
#else
  ::emulation::wait_for_copies();
#endif
}

/// Two numbers rounded to the nearest bf16.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
#ifdef __CUDACC__
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return ::emulation::pack_bf16(low, high);
#endif
}
__device__ __forceinline__ float bits_as_float(std::uint32_t bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  return ::emulation::bits_as_float(bits);
#endif
}
__device__ __forceinline__ float low_of(std::uint32_t both) {
  return bits_as_float(both << 16);
}
__device__ __forceinline__ float high_of(std::uint32_t both) {
  return bits_as_float(both & 0xffff0000u);
}

/// 2^x in one instruction: 2 units in the last place off, small results are 0.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDACC__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
#else
  return std::exp2(x);
#endif
}

}  // namespace eaglet::cuda

#include "device/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>

#include "device/place.h"
#include "device/threads.h"

namespace eaglet {
namespace {

decltype(&gemm) open_device_gemm = nullptr;

}  // namespace

void set_device_gemm(decltype(&gemm) device_gemm) {
  open_device_gemm = device_gemm;
}

void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
          float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (on_device(c))
    return open_device_gemm(a_transposed, b_transposed, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  num_threads();  // makes sure OpenMP, which oneDNN follows, has our thread count
  const dnnl_status_t status =
      dnnl_sgemm(a_transposed == Transpose::kYes ? 'T' : 'N', b_transposed == Transpose::kYes ? 'T' : 'N', m,
                 n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (status != dnnl_success) std::abort();  // only wrong leading dimensions or no memory: our own bug
}

}  // namespace eaglet

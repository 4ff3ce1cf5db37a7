#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "device/cublas_lt.h"
#include "device/cuda_device.h"
#include "device/cuda_op_times.h"
#include "device/cuda_product.h"

namespace eaglet::cuda {
namespace {

constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{32} << 20;
// Batches differ in their rows, so shapes come and go; what was found for them is small.
constexpr std::size_t kMostPlans = 4096;
constexpr std::uint32_t kMostAlignment = 256;

// What cuBLASLt sees: row-major c = a b is column-major c^T = b^T a^T, so `first` is our b and `second` our
// a.
struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  int type = 0;
  int first_op = 0, second_op = 0;
  std::int64_t first_ld = 0, second_ld = 0, ldc = 0;
  std::uint32_t first_alignment = 0, second_alignment = 0, c_alignment = 0;
  auto key() const {
    return std::tie(m, n, k, type, first_op, second_op, first_ld, second_ld, ldc, first_alignment,
                    second_alignment, c_alignment);
  }
  bool operator<(const Shape& other) const { return key() < other.key(); }
};

struct Plan {
  void *desc = nullptr, *first = nullptr, *second = nullptr, *c = nullptr;
  cublas_lt::Algo algo = {};
};

struct Products {
  const cublas_lt::Functions* calls = nullptr;
  void *handle = nullptr, *workspace = nullptr;
  std::map<Shape, Plan> plans;
};
Products* products = nullptr;

bool well(int status, const char* call) {
  if (status == cublas_lt::kSuccess) return true;
  note_text(std::string("cuBLASLt: ") + call + ": status " + std::to_string(status));
  return false;
}

std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(bits & (~bits + 1), kMostAlignment));
}

int op_of(const Operand& operand) {
  return operand.transposed == Transpose::kYes ? cublas_lt::kTranspose : cublas_lt::kNoTranspose;
}

void forget(const Plan& plan) {
  const cublas_lt::Functions& f = *products->calls;
  for (void* layout : {plan.first, plan.second, plan.c})
    if (layout != nullptr) f.layout_destroy(layout);
  if (plan.desc != nullptr) f.desc_destroy(plan.desc);
}

void forget_all() {
  for (const auto& [shape, plan] : products->plans) forget(plan);
  products->plans.clear();
}

bool make_layouts(const Shape& s, Plan* plan) {
  const cublas_lt::Functions& f = *products->calls;
  const auto m = static_cast<std::uint64_t>(s.m), n = static_cast<std::uint64_t>(s.n),
             k = static_cast<std::uint64_t>(s.k);
  const bool first_turned = s.first_op == cublas_lt::kTranspose,
             second_turned = s.second_op == cublas_lt::kTranspose;
  return well(f.desc_create(&plan->desc, cublas_lt::kCompute32F, cublas_lt::kF32), "MatmulDescCreate") &&
         well(f.desc_set(plan->desc, cublas_lt::kDescTransA, &s.first_op, sizeof s.first_op), "transa") &&
         well(f.desc_set(plan->desc, cublas_lt::kDescTransB, &s.second_op, sizeof s.second_op), "transb") &&
         well(f.layout_create(&plan->first, s.type, first_turned ? k : n, first_turned ? n : k, s.first_ld),
              "layout of a") &&
         well(f.layout_create(&plan->second, s.type, second_turned ? m : k, second_turned ? k : m,
                              s.second_ld),
              "layout of b") &&
         well(f.layout_create(&plan->c, cublas_lt::kF32, n, m, s.ldc), "layout of c");
}

// Without being told, the library counts on pointers aligned to 256 bytes; ours may lie anywhere.
bool prefer(const Shape& s, void* preference) {
  const cublas_lt::Functions& f = *products->calls;
  const auto set = [&](int attribute, const auto& value) {
    return well(f.preference_set(preference, attribute, &value, sizeof value), "preference");
  };
  return set(cublas_lt::kPreferMaxWorkspaceBytes, kWorkspaceBytes) &&
         set(cublas_lt::kPreferAlignmentA, s.first_alignment) &&
         set(cublas_lt::kPreferAlignmentB, s.second_alignment) &&
         set(cublas_lt::kPreferAlignmentC, s.c_alignment) && set(cublas_lt::kPreferAlignmentD, s.c_alignment);
}

bool choose(const Shape& s, Plan* plan) {
  const cublas_lt::Functions& f = *products->calls;
  void* preference = nullptr;
  if (!well(f.preference_create(&preference), "MatmulPreferenceCreate")) return false;
  cublas_lt::Heuristic best = {};
  int found = 0;
  bool chosen =
      prefer(s, preference) && well(f.heuristic(products->handle, plan->desc, plan->first, plan->second,
                                                plan->c, plan->c, preference, 1, &best, &found),
                                    "MatmulAlgoGetHeuristic");
  if (chosen && (found == 0 || best.state != cublas_lt::kSuccess)) {
    note_text("cuBLASLt has no way to multiply " + std::to_string(s.m) + " x " + std::to_string(s.k) +
              " by " + std::to_string(s.n));
    chosen = false;
  }
  plan->algo = best.algo;
  f.preference_destroy(preference);
  return chosen;
}

// nullptr when the library refused, which is noted.
const Plan* plan_for(const Shape& shape) {
  const auto known = products->plans.find(shape);
  if (known != products->plans.end()) return &known->second;
  if (products->plans.size() >= kMostPlans) forget_all();
  Plan plan;
  if (!make_layouts(shape, &plan) || !choose(shape, &plan)) {
    forget(plan);
    return nullptr;
  }
  return &products->plans.emplace(shape, plan).first->second;
}

__global__ void scale_rows(std::int64_t m, std::int64_t n, float beta, float* c, std::int64_t ldc) {
  for (std::int64_t row = blockIdx.x; row < m; row += gridDim.x)
    for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x)
      c[row * ldc + j] = beta == 0 ? 0 : beta * c[row * ldc + j];
}

}  // namespace

void product(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Operand& a, const Operand& b,
             float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta != 1) launch("product", scale_rows, dim3(blocks_for(m, 1)), dim3(128), m, n, beta, c, ldc);
    return;
  }
  Shape shape;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.type = a.type == ComputeType::kBf16 ? cublas_lt::kBf16 : cublas_lt::kF32;
  shape.first_op = op_of(b);
  shape.second_op = op_of(a);
  shape.first_ld = b.ld;
  shape.second_ld = a.ld;
  shape.ldc = ldc;
  shape.first_alignment = alignment_of(b.data);
  shape.second_alignment = alignment_of(a.data);
  shape.c_alignment = alignment_of(c);
  const Plan* plan = plan_for(shape);
  if (plan == nullptr) return;
  well(products->calls->matmul(products->handle, plan->desc, &alpha, b.data, plan->first, a.data,
                               plan->second, &beta, c, plan->c, c, plan->c, &plan->algo, products->workspace,
                               kWorkspaceBytes, stream()),
       "Matmul");
}

namespace {

void device_gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                 std::int64_t k, float alpha, const float* a, std::int64_t lda, const float* b,
                 std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  const TimedOp timed(OpGroup::kProducts);
  product(m, n, k, alpha, {a, ComputeType::kF32, lda, a_transposed},
          {b, ComputeType::kF32, ldb, b_transposed}, beta, c, ldc);
}

}  // namespace

Status open_products() {
  EAGLET_ASSIGN_OR_RETURN(const cublas_lt::Functions* calls, cublas_lt::load());
  static Products open;
  open.calls = calls;
  const int status = calls->create(&open.handle);
  if (status != cublas_lt::kSuccess)
    return Status(StatusCode::kUnavailable, "cuBLASLt does not start: status " + std::to_string(status), "",
                  "see that the driver is as new as the library: nvidia-smi");
  if (cudaMalloc(&open.workspace, kWorkspaceBytes) != cudaSuccess) {
    calls->destroy(open.handle);
    return Status(StatusCode::kNoSpace, "the device has no memory left for cuBLASLt's workspace", "",
                  "close what else uses the device");
  }
  products = &open;
  set_device_gemm(&device_gemm);
  return {};
}

void close_products() {
  if (products == nullptr) return;
  set_device_gemm(nullptr);
  forget_all();
  products->calls->destroy(products->handle);
  note(cudaFree(products->workspace), "cudaFree");
  products = nullptr;
}

}  // namespace eaglet::cuda

#include "device/compute_type.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "device/onednn_product.h"
#include "device/threads.h"

namespace eaglet {

const char* compute_type_name(ComputeType type) {
  return type == ComputeType::kBf16 ? "bf16" : "f32";
}

Result<ComputeType> parse_compute_type(const std::string& name) {
  if (name == "f32") return ComputeType::kF32;
  if (name == "bf16") return ComputeType::kBf16;
  return Status(StatusCode::kUsage, "there is no compute type '" + name + "'", "--compute-type",
                "use auto, f32 or bf16");
}

Result<ComputeType> steady_compute_type(const std::string& name) {
  if (name == "auto") return multiplies_bf16() ? ComputeType::kBf16 : ComputeType::kF32;
  return parse_compute_type(name);
}

namespace {

// Times one product of a training step's kind again and again; the best time counts.
class ProductTimer {
 public:
  explicit ProductTimer(ComputeType type)
      : program_(onednn::product(
            onednn::matrix(kBlockRows, kWidth, onednn::type_of(type), onednn::Layout::ab),
            onednn::matrix(kWidth, kWidth, onednn::type_of(type), onednn::Layout::any),
            onednn::matrix(kBlockRows, kWidth, onednn::Type::f32, onednn::Layout::ab), false)),
        operand_(2 * kWidth * kWidth),  // enough for either type
        result_(kBlockRows * kWidth) {}
  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const double begin = monotonic_seconds();
      program_(operand_.data(), operand_.data(), result_.data());
      best_seconds_ = std::min(best_seconds_, monotonic_seconds() - begin);
    }
  }
  double flops() const { return 2.0 * kBlockRows * kWidth * kWidth / best_seconds_; }

 private:
  static constexpr std::int64_t kBlockRows = 256, kWidth = 1024;
  onednn::Program program_;
  std::vector<std::uint16_t> operand_;
  std::vector<float> result_;
  double best_seconds_ = 1e30;
};

constexpr int kTurns = 10, kRoundsOfATurn = 10;

}  // namespace

bool multiplies_bf16() {
  return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
}

double measured_product_flops(ComputeType type) {
  if (type == ComputeType::kBf16 && !multiplies_bf16()) return 0;
  num_threads();
  ProductTimer timer(type);
  timer.run(kTurns * kRoundsOfATurn);
  return timer.flops();
}

ComputeType fastest_compute_type() {
  constexpr double kMargin = 1.2;
  if (!multiplies_bf16()) return ComputeType::kF32;
  num_threads();
  ProductTimer f32(ComputeType::kF32), bf16(ComputeType::kBf16);
  for (int turn = 0; turn < kTurns; ++turn) {  // by turns, so that what disturbs one disturbs the other
    f32.run(kRoundsOfATurn);
    bf16.run(kRoundsOfATurn);
  }
  return bf16.flops() > kMargin * f32.flops() ? ComputeType::kBf16 : ComputeType::kF32;
}

}  // namespace eaglet

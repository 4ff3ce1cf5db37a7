#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace eaglet {

double Schedule::rate(std::int64_t step) const {
  if (step < warmup_steps) return base_lr * (static_cast<double>(step) / static_cast<double>(warmup_steps));
  if (kind == Kind::kNone) return base_lr;
  const auto decay_steps = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  double share = 0;  // of the decaying part that is left: 1 at the end of warm-up
  if (kind == Kind::kLinear) {
    share = std::max(0.0, static_cast<double>(total_steps - step) / decay_steps);
  } else {
    const double progress = static_cast<double>(step - warmup_steps) / decay_steps;
    share = std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * num_cosine_cycles * 2.0 * progress)));
  }
  return base_lr * (min_lr_ratio + (1.0 - min_lr_ratio) * share);
}

Result<Schedule::Kind> parse_schedule_kind(const std::string& name) {
  if (name == "linear") return Schedule::Kind::kLinear;
  if (name == "cosine") return Schedule::Kind::kCosine;
  if (name == "none" || name == "constant") return Schedule::Kind::kNone;
  return Status(StatusCode::kUsage, "unknown schedule \"" + name + "\"", "--scheduler-type",
                "use linear, cosine, or constant (also called none)");
}

}  // namespace eaglet

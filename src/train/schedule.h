#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace eaglet {

/// Learning rate by step. Steps count from 0: step s is made with rate(s), so step 0 has rate 0 under warm-up
/// (speculators' global_step, transformers' schedules).
struct Schedule {
  enum class Kind { kLinear, kCosine, kNone };
  Kind kind = Kind::kLinear;
  double base_lr = 0;
  std::int64_t warmup_steps = 0;  // rate rises from 0 to base_lr over these
  std::int64_t total_steps = 0;   // the decay ends here
  double num_cosine_cycles = 0.5;
  double min_lr_ratio = 0;  // the decay ends at this share of base_lr

  double rate(std::int64_t step) const;
};

/// "linear" | "cosine" | "none" (also "constant"); kUsage names anything else.
Result<Schedule::Kind> parse_schedule_kind(const std::string& name);

}  // namespace eaglet

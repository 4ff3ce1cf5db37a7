#pragma once

#include <array>
#include <cstddef>

namespace eaglet {

/// What a device spends its time on, as the log names it.
enum class OpGroup {
  kProducts,     // matrix products, and rounding what goes into them
  kAttention,    //
  kHeadLoss,     // teacher, head, losses and their products
  kNorms,        //
  kElementwise,  // rotation, SwiGLU, biases, rows gathered and scattered, states widened
  kOptimizer,    // gradient norm, AdamW, Muon and its products
  kCopies,       // to and from the host, in line with the ops
  kStates,       // states to the device; beside the ops
  kStatesWait,   // what the ops waited for these
  kReduction,    // gradients over the ranks; beside the ops
};
inline constexpr std::size_t kOpGroups = 10;
/// "products", "head_loss", ...
const char* op_group_name(OpGroup group);

/// Seconds on the device by group.
struct OpTimes {
  std::array<double, kOpGroups> seconds{};
  double of(OpGroup group) const { return seconds[static_cast<std::size_t>(group)]; }
  /// Of the groups that run one after another: what the device was at work for.
  double in_line() const;
};

}  // namespace eaglet

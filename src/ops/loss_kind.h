#pragma once

#include <vector>

namespace eaglet {

/// Losses between the teacher's distribution p and the draft's q over the draft vocabulary
/// (docs/math/losses.md): kl = KL(p||q), rkl = KL(q||p), jsd = mean of both to (p+q)/2, ce = -log q[argmax
/// p], tv = 1 - a with a = sum min(p,q), nla = -log max(a, 1e-5), lk_hybrid = l*kl + (1-l)*tv with l =
/// exp(-3a), no gradient through l.
enum class LossKind { kKl, kRkl, kJsd, kCe, kTv, kNla, kLkHybrid };

struct LossTerm {
  LossKind kind = LossKind::kKl;
  double weight = 1.0;
};

}  // namespace eaglet

#include "evaluate/draft_length.h"

#include <algorithm>

namespace eaglet {

std::vector<LengthGain> length_gains(const std::vector<WalkedAcceptance>& walked, const PassCosts& costs) {
  std::vector<LengthGain> gains;
  for (const WalkedAcceptance& w : walked)
    gains.push_back({w.draft_length, w.acceptance_length(),
                     1 + static_cast<double>(w.draft_length) * (costs.draft_step + costs.verify_token)});
  return gains;
}

const LengthGain* best_gain(const std::vector<LengthGain>& gains) {
  const auto best =
      std::max_element(gains.begin(), gains.end(),
                       [](const LengthGain& a, const LengthGain& b) { return a.speedup() < b.speedup(); });
  return best == gains.end() ? nullptr : &*best;
}

std::optional<PassCosts> measured_costs(const ServeReport& report) {
  if (report.plain_tokens <= 0 || report.plain_seconds <= 0) return std::nullopt;
  const double plain = report.plain_seconds / report.plain_tokens;
  double products = 0, squares = 0;
  for (const ServedLength& served : report.lengths) {
    if (served.passes <= 0 || served.seconds <= 0) continue;
    const auto length = static_cast<double>(served.draft_length);
    products += length * (served.seconds / served.passes / plain - 1);
    squares += length * length;
  }
  if (squares <= 0) return std::nullopt;
  return PassCosts{.draft_step = std::max(0.0, products / squares), .verify_token = 0};
}

}  // namespace eaglet

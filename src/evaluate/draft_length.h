#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evaluate/evaluate.h"

namespace eaglet {

/// Costs in units of one plain pass of the target over one token.
struct PassCosts {
  double draft_step = 0;    // one drafted token
  double verify_token = 0;  // one more token in the target's pass
};

/// One draft length and what it is worth.
struct LengthGain {
  std::int64_t draft_length = 0;
  double tokens_per_pass = 0, pass_cost = 0;
  double speedup() const { return pass_cost > 0 ? tokens_per_pass / pass_cost : 0; }
};

/// Speed against plain decoding by draft length: tokens per pass (walked) over 1 + N * (draft step + verified
/// token).
std::vector<LengthGain> length_gains(const std::vector<WalkedAcceptance>& walked, const PassCosts& costs);
/// The length that pays best; nullptr when the list is empty.
const LengthGain* best_gain(const std::vector<LengthGain>& gains);

/// Cost of each further drafted token (drafting it and checking it, which a whole program cannot tell apart)
/// from a served measurement: least squares of time per pass over draft length, through one plain pass at
/// length 0. Nothing when it was not measured.
std::optional<PassCosts> measured_costs(const ServeReport& report);

}  // namespace eaglet

#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/comm.h"
#include "draft/draft_model.h"

namespace eaglet {

/// What the ranks tell each other once an update (or a validation), so that all know the same sums and decide
/// alike. Sums over ranks after exchange(); a flag is then the number of ranks that raised it.
struct RankFacts {
  StepSums sums;
  double tokens = 0, needed_flops = 0;
  double not_finite = 0;                                  // a loss of this rank
  double sigint = 0, sigterm = 0, save = 0, time_up = 0;  // asked of this rank
};

/// One sum over all ranks; nothing to do with one rank. `ttt_steps` entries in facts->sums, also on a rank
/// that had no batch.
Status exchange(Comm& comm, int ttt_steps, RankFacts* facts);

}  // namespace eaglet

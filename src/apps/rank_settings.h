#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::apps {

/// Which ranks train, and where each computes: flags of `eaglet train`, keys of a recipe's [run].
struct RankSettings {
  std::string device = "auto";  // open_device.h
  int gpus = 0;                 // as many ranks, with a GPU each; 0: as `ranks` says
  int ranks = 0;                // started on this machine; 0 or 1: this process alone
  double rank_timeout_seconds = 600;
};

/// Turns `gpus` into `ranks` on CUDA devices. kUsage for what excludes each other, kUnavailable when this
/// machine has fewer GPUs that could be used now, as open_cuda_backend without any.
Status settle(RankSettings* settings);

}  // namespace eaglet::apps

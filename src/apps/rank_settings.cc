#include "apps/rank_settings.h"

#include <fmt/format.h>

#include "apps/cuda_backend.h"
#include "apps/own_ranks.h"
#include "apps/usage_error.h"

namespace eaglet::apps {

Status settle(RankSettings* settings) {
  if (settings->gpus < 0 || settings->ranks < 0 || !(settings->rank_timeout_seconds >= 0))
    return flags_error("--gpus, --ranks and --rank-timeout cannot be negative", "give 0 or more");
  if (settings->gpus == 0) return {};
  if (settings->ranks > 0) return flags_error("--gpus excludes --ranks", "give one of them");
  if (settings->device != "auto" && settings->device != "cuda")
    return flags_error("--gpus excludes --device " + settings->device,
                       "leave --device out; --ranks N is for processors");
  settings->device = "cuda";
  settings->ranks = settings->gpus;
  if (cuda_version().empty()) return open_cuda_backend(0).status();
  if (is_own_rank() || usable_cuda_devices() >= settings->gpus) return {};
  return Status(StatusCode::kUnavailable,
                fmt::format("{} GPUs are wanted, and this machine has {} that could be used now",
                            settings->gpus, usable_cuda_devices()),
                "--gpus", "see nvidia-smi and CUDA_VISIBLE_DEVICES");
}

}  // namespace eaglet::apps

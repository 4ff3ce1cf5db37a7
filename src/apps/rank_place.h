#pragma once

#include <memory>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "comm/comm.h"
#include "device/accelerator.h"

namespace eaglet::apps {

/// The ranks of this run, and where this one computes.
struct RankPlace {
  std::unique_ptr<Comm> comm;
  std::unique_ptr<Accelerator> device;  // nullptr: this machine's processor
};

/// Meets the other ranks, as whoever started them says, and opens what --device names. With several ranks
/// "cuda" is one device a rank: the rank's number on its machine, or the only one that it sees; "auto" is
/// that where every rank has one, and the processor where none has. A rank that lives and does not come is
/// waited for `timeout_seconds` (0: for ever). kUsage, kConfig, kUnavailable, kNotFound, of which the other
/// ranks get to know.
Result<RankPlace> open_rank_place(const std::string& device, double timeout_seconds, Progress& progress);

}  // namespace eaglet::apps

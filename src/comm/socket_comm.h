#pragma once

#include <memory>

#include "base/status.h"
#include "comm/comm.h"
#include "comm/rank_environment.h"

namespace eaglet {

/// Ranks that meet at a port of rank 0 (torchrun's variables, eaglet train --gpus) and then speak over TCP,
/// each with each, with a watch line between them. Sums go round in a ring, a part of the numbers from each
/// rank at a time, so that every link carries the same; they are the same bits on every rank and in every
/// run. A rank that lives and does not come is waited for `timeout_seconds`; 0: for ever.
Result<std::unique_ptr<Comm>> start_sockets(const RankEnvironment& environment, double timeout_seconds);

}  // namespace eaglet

#pragma once

#include <string>
#include <vector>

#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// A segment of shared memory that a trainer made and nobody maps or has open any more: it takes memory until
/// it is removed.
struct ShmLeftover {
  std::string path;
  double bytes = 0;
};
/// This user's segments named as torch, NCCL and Python's semaphores name theirs. Empty when a process of
/// this user cannot be looked into: then nothing is known to be unused.
std::vector<ShmLeftover> shm_leftovers(const ProcReader& reader);

}  // namespace eaglet::monitor

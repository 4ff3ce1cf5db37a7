#pragma once

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"

namespace eaglet::apps {

/// True in a process that run_own_ranks() has started: it is one of the ranks, and starts no others.
bool is_own_rank();

struct OwnRanksPlan {
  int ranks = 1;
  std::vector<std::string> words;  // eaglet's command line, argv[0] first; empty: this process's own
  std::string output_path;         // a file for rank 0's standard output; empty: ours
};

/// Starts eaglet `ranks` times on this machine, as ranks that find each other (as torchrun would), and stays
/// until all have ended. Rank 0 speaks as if it were alone; what the others say has their number in front.
/// SIGINT and SIGTERM go to all of them, SIGUSR1 to rank 0. When one fails the others get some seconds to end
/// by themselves, then they are ended. The exit code is rank 0's, else that of who failed. kConfig when this
/// process is one of several ranks already, or errno's when none can be started.
Result<int> run_own_ranks(const OwnRanksPlan& plan, Progress& progress);

}  // namespace eaglet::apps

#pragma once

#include "apps/command.h"
#include "base/status.h"

namespace eaglet::apps {

/// True in a process that run_own_ranks() has started: it is one of the ranks, and starts no others.
bool is_own_rank();

/// Starts this command again `ranks` times on this machine, as ranks that find each other (as torchrun
/// would), and stays until all have ended. Rank 0 speaks as if it were alone; what the others say has their
/// number in front. SIGINT and SIGTERM go to all of them, SIGUSR1 to rank 0. When one fails the others get
/// some seconds to end by themselves, then they are ended. The exit code is rank 0's, else that of who failed
/// (context.verdict). kConfig when this process is one of several ranks already.
Status run_own_ranks(int ranks, Context& context);

}  // namespace eaglet::apps

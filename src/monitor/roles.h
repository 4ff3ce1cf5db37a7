#pragma once

#include <cstdint>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

enum class Role { kRank, kWorker, kCompileWorker, kLauncher, kOther };

/// Whether the command or its name says that it starts ranks (torchrun, accelerate, mpirun, "launcher").
bool is_launcher(const ProcessView& process);
/// Whether it is a data loader's worker by its own name ("pt_data_worker", "loader worker", multiprocessing).
bool is_worker(const ProcessView& process);

/// The processes of one run in a view, told apart. Indices into RunView::processes.
struct Roles {
  std::vector<std::size_t> ranks, workers, compile_workers, launchers;
  std::vector<std::size_t> zombie_ranks;  // dead, not collected by their parent yet
  std::vector<std::size_t> orphans;       // workers (or what is left of ranks) whose run is gone
};
Roles roles_of(const RunView& view);

}  // namespace eaglet::monitor

#include "monitor/roles.h"

#include <algorithm>
#include <set>

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

bool dead(const ProcessView& process) {
  return process.state == 'Z' || process.state == 'X' || contains(process.command, "<defunct>");
}

/// Programs that only start another one: their command line names the trainer too.
bool is_wrapper(const ProcessView& process) {
  const auto parts = words(process.command);
  if (parts.empty()) return false;
  const std::string_view program = parts.front().substr(parts.front().rfind('/') + 1);
  for (const char* name :
       {"bash",   "sh",     "dash", "zsh",    "timeout", "nice", "nohup", "env",    "sudo",  "srun", "time",
        "stdbuf", "script", "tmux", "screen", "tee",     "ssh",  "su",    "setsid", "xargs", "watch"})
    if (program == name) return true;
  return false;
}

bool looks_like_training(const ProcessView& process) {
  const std::string text = lower(process.command + " " + process.name);
  return process.rank >= 0 || contains_any(text, {"train", "finetune", "speculators", "specforge", "eagle"});
}

}  // namespace

bool is_launcher(const ProcessView& process) {
  if (process.name == "pt_elastic") return true;
  return contains_any(lower(process.command),
                      {"torchrun", "torch.distributed.run", "torch/distributed/run", "launcher",
                       "accelerate launch", "accelerate-launch", "mpirun", "mpiexec", "deepspeed "});
}

bool is_worker(const ProcessView& process) {
  if (process.name == "pt_data_worker") return true;
  return contains_any(lower(process.command),
                      {"pt_data_worker", "loader worker", "dataloader", "multiprocessing.spawn",
                       "multiprocessing.fork", "multiprocessing/spawn", "multiprocessing.resource_tracker"});
}

Roles roles_of(const RunView& view) {
  Roles roles;
  if (!view.processes) return roles;
  const auto& all = *view.processes;
  std::set<std::int64_t> on_device, alive;
  if (view.device_processes)
    for (const DeviceProcess& process : *view.device_processes) on_device.insert(process.pid);
  for (const ProcessView& process : all)
    if (!dead(process)) alive.insert(process.pid);
  std::set<std::int64_t> rank_pids;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ProcessView& process = all[i];
    const bool compute = on_device.count(process.pid) != 0 || process.holds_device;
    if (is_launcher(process) || is_wrapper(process)) {
      if (!dead(process)) roles.launchers.push_back(i);
    } else if (contains_any(process.command, {"compile_worker"})) {
      roles.compile_workers.push_back(i);
    } else if (is_worker(process)) {
      roles.workers.push_back(i);
    } else if (looks_like_training(process) || compute) {
      (dead(process) ? roles.zombie_ranks : roles.ranks).push_back(i);
      rank_pids.insert(process.pid);
    }
  }
  // A child of a rank without a rank of its own is a worker, whatever it is called.
  for (auto it = roles.ranks.begin(); it != roles.ranks.end();) {
    const ProcessView& process = all[*it];
    const bool child =
        process.rank < 0 && rank_pids.count(process.parent) != 0 && on_device.count(process.pid) == 0;
    if (child) roles.workers.push_back(*it);
    it = child ? roles.ranks.erase(it) : it + 1;
  }
  // A tree that we know to be the run's, whatever it is called: its busiest process stands for a rank.
  if (view.only_this_run && roles.ranks.empty() && roles.zombie_ranks.empty()) {
    std::size_t busiest = all.size();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool taken = dead(all[i]) || is_worker(all[i]) || (is_launcher(all[i]) && all.size() > 1);
      if (!taken && (busiest == all.size() || all[i].cpu_seconds > all[busiest].cpu_seconds)) busiest = i;
    }
    if (busiest < all.size()) {
      roles.ranks.push_back(busiest);
      std::erase(roles.launchers, busiest);
    }
  }
  // A defunct process has neither command nor environment: who stands beside a rank under its parent, and is
  // called like it, was one.
  if (view.only_this_run)
    for (std::size_t i = 0; i < all.size(); ++i)
      if (dead(all[i]) && all[i].rank < 0 && (all[i].command.empty() || all[i].command.front() == '[') &&
          std::any_of(roles.ranks.begin(), roles.ranks.end(), [&](std::size_t rank) {
            return all[rank].parent == all[i].parent && all[rank].name == all[i].name;
          }))
        roles.zombie_ranks.push_back(i);
  for (const std::size_t i : roles.workers)
    if (!dead(all[i]) && (all[i].parent == 1 || alive.count(all[i].parent) == 0)) roles.orphans.push_back(i);
  std::sort(roles.ranks.begin(), roles.ranks.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(all[a].rank, all[a].pid) < std::pair(all[b].rank, all[b].pid);
  });
  return roles;
}

}  // namespace eaglet::monitor

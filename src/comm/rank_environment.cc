#include "comm/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

namespace eaglet {
namespace {

constexpr int kLastPort = 65535;

std::string text_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_set(const char* name) {
  return !text_of(name).empty();
}

// The first of these variables that is set; -1 when none is.
Result<int> first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string text = text_of(name);
    if (text.empty()) continue;
    int number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && number >= 0) return number;
    return Status(StatusCode::kConfig, fmt::format("{} is no number from 0 on: '{}'", name, text),
                  "environment", "start the ranks with torchrun, mpirun, srun or eaglet train --gpus");
  }
  return -1;
}

// How many tasks the launcher started, as far as it says so.
int tasks_started() {
  int tasks = 1;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    tasks = std::max(tasks, std::atoi(text_of(name).c_str()));
  return tasks;
}

bool introduced_by_mpi() {
  return is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK") || is_set("PMI_RANK");
}

// torchrun's agent may hold MASTER_PORT for a store of its own, where we would not be understood: then the
// next port.
Result<int> meeting_port() {
  EAGLET_ASSIGN_OR_RETURN(const int own, first_number({"EAGLET_MASTER_PORT"}));
  if (own > 0) return own;
  EAGLET_ASSIGN_OR_RETURN(const int port, first_number({"MASTER_PORT"}));
  if (text_of("TORCHELASTIC_USE_AGENT_STORE") != "True") return port;
  return port < kLastPort ? port + 1 : port - 1;
}

Status missing(const std::string& what) {
  return Status(StatusCode::kConfig, fmt::format("one of several ranks, but {} is not set", what),
                "environment",
                "torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; on one machine "
                "eaglet train --gpus N needs none of them");
}

Result<RankEnvironment> by_sockets(int ranks) {
  RankEnvironment e;
  e.way = RankEnvironment::Way::kSockets;
  e.ranks = ranks;
  EAGLET_ASSIGN_OR_RETURN(e.rank, first_number({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}));
  EAGLET_ASSIGN_OR_RETURN(e.rank_here,
                          first_number({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}));
  EAGLET_ASSIGN_OR_RETURN(e.port, meeting_port());
  EAGLET_ASSIGN_OR_RETURN(e.listening, first_number({"EAGLET_MEETING_FD"}));
  if (e.rank != 0) e.listening = -1;
  e.host = text_of("MASTER_ADDR");
  e.run = is_set("EAGLET_RANKS_RUN") ? text_of("EAGLET_RANKS_RUN") : text_of("TORCHELASTIC_RUN_ID");
  if (e.rank < 0) return missing("RANK");
  if (e.host.empty()) return missing("MASTER_ADDR");
  if (e.port < 0) return missing("MASTER_PORT");
  if (e.rank >= e.ranks || e.port == 0 || e.port > kLastPort)
    return Status(StatusCode::kConfig,
                  fmt::format("rank {} of {} at port {}: that cannot be", e.rank, e.ranks, e.port),
                  "environment", "see RANK, WORLD_SIZE and MASTER_PORT");
  return e;
}

}  // namespace

Result<RankEnvironment> read_rank_environment(bool with_mpi) {
  const int tasks = tasks_started();
  RankEnvironment e;
  e.way = RankEnvironment::Way::kMpi;
  if (tasks > 1 && with_mpi && introduced_by_mpi()) return e;
  EAGLET_ASSIGN_OR_RETURN(const int world, first_number({"WORLD_SIZE"}));
  if (world > 1) return by_sockets(world);
  if (tasks == 1) return RankEnvironment();
  if (is_set("MASTER_ADDR") && is_set("MASTER_PORT")) return by_sockets(tasks);
  if (!with_mpi)
    return Status(StatusCode::kConfig,
                  fmt::format("started as one of {} tasks, but this eaglet was built without MPI", tasks), {},
                  "set MASTER_ADDR and MASTER_PORT for all tasks, build it again with Open MPI installed "
                  "(scripts/setup --mpi), or start one task");
  return Status(StatusCode::kConfig,
                fmt::format("srun started {} tasks that know nothing of each other", tasks), {},
                "give srun --mpi=pmix, set MASTER_ADDR and MASTER_PORT for all tasks, or start eaglet with "
                "mpirun");
}

}  // namespace eaglet

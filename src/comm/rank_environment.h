#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// What the environment says about the ranks of a run, and how they find each other.
///
///   mpirun, srun --mpi=pmix         OMPI_COMM_WORLD_SIZE, PMI_RANK, PMIX_RANK: MPI does it, where built in
///   torchrun                        RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: sockets
///   srun, mpirun with MASTER_ADDR   the rank is SLURM_PROCID or OMPI_COMM_WORLD_RANK: sockets
///   eaglet train --gpus N           as torchrun; rank 0 gets the listening socket (EAGLET_MEETING_FD)
struct RankEnvironment {
  enum class Way { kAlone, kMpi, kSockets } way = Way::kAlone;
  // With sockets:
  int rank = 0, ranks = 1;
  int rank_here = -1;  // -1: not said
  std::string host;    // rank 0's machine
  int port = 0;        // where it waits for the others
  int listening = -1;  // rank 0's socket, when whoever started the ranks has opened it
  std::string run;     // ranks of another run are turned away
};

/// kConfig when several tasks were started that cannot find each other, or a variable is missing or no
/// number.
Result<RankEnvironment> read_rank_environment(bool with_mpi);

}  // namespace eaglet

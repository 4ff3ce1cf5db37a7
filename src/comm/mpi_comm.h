#pragma once

#include <memory>

#include "base/status.h"
#include "comm/comm.h"

namespace eaglet {

/// All ranks of MPI_COMM_WORLD, with a watch line between them. Once per process.
Result<std::unique_ptr<Comm>> start_mpi(double timeout_seconds);

}  // namespace eaglet

#include "comm/comm.h"

#include <fmt/format.h>

#include "comm/mpi_comm.h"
#include "comm/rank_environment.h"
#include "comm/socket_comm.h"

namespace eaglet {
namespace {

class OneRank : public Comm {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  int ranks_here() const override { return 1; }
  Status sum(std::int64_t, float*) override { return {}; }
  Status sum(std::int64_t, double*) override { return {}; }
  Status broadcast(std::int64_t, void*, int) override { return {}; }
  Status send(std::int64_t, const void*, int) override { return nobody(); }
  Status receive(std::int64_t, void*, int) override { return nobody(); }
  void leave_together() override {}
  void leave(const Status&) override {}

 private:
  static Status nobody() { return Status(StatusCode::kInternal, "there is no other rank to talk to"); }
};

// Whose code differs trains something else, though the settings are the same.
Status check_same_build(Comm& comm, const std::function<std::string()>& build) {
  if (comm.ranks() == 1 || !build) return {};
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> all, gather_texts(comm, build()));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return Status(StatusCode::kConfig,
                    fmt::format("rank {} is another eaglet than rank 0: {} and {}", rank, all[rank], all[0]),
                    {}, "start the same program on every machine");
  return {};
}

// An MPI that does not speak the launcher's language takes each task for a run of its own.
Result<std::unique_ptr<Comm>> meet_by_mpi(double timeout_seconds) {
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<Comm> comm, start_mpi(timeout_seconds));
  if (comm->ranks() > 1) return comm;
  return Status(StatusCode::kConfig, "one of several tasks, but MPI knows of this one only", {},
                "give srun --mpi=pmix, set MASTER_ADDR and MASTER_PORT for all tasks, or start eaglet with "
                "mpirun");
}

Result<std::unique_ptr<Comm>> meet(const RanksOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const RankEnvironment environment, read_rank_environment(!mpi_version().empty()));
  switch (environment.way) {
    case RankEnvironment::Way::kAlone:
      return one_rank();
    case RankEnvironment::Way::kMpi:
      return meet_by_mpi(options.timeout_seconds);
    case RankEnvironment::Way::kSockets:
      return start_sockets(environment, options.timeout_seconds);
  }
  return one_rank();
}

}  // namespace

std::unique_ptr<Comm> one_rank() {
  return std::make_unique<OneRank>();
}

Result<std::unique_ptr<Comm>> start_ranks(const RanksOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<Comm> comm, meet(options));
  if (const Status same = check_same_build(*comm, options.build); !same.ok()) {
    comm->leave(same);
    return same;
  }
  return comm;
}

Status Comm::overdue(double waited_seconds) {
  return Status(StatusCode::kUnavailable, fmt::format("no answer for {:.0f} s", waited_seconds), {},
                "see whether all ranks still run and reach each other, then run the same command again");
}

Status share_text(Comm& comm, int root, std::string* text) {
  auto bytes = static_cast<std::int64_t>(text->size());
  EAGLET_RETURN_IF_ERROR(comm.broadcast(sizeof bytes, &bytes, root));
  text->resize(static_cast<std::size_t>(bytes));
  return bytes == 0 ? Status() : comm.broadcast(bytes, text->data(), root);
}

Result<std::vector<std::string>> gather_texts(Comm& comm, const std::string& mine) {
  std::vector<std::string> texts(static_cast<std::size_t>(comm.ranks()));
  texts[static_cast<std::size_t>(comm.rank())] = mine;
  for (int rank = 0; rank < comm.ranks(); ++rank)
    EAGLET_RETURN_IF_ERROR(share_text(comm, rank, &texts[static_cast<std::size_t>(rank)]));
  return texts;
}

}  // namespace eaglet

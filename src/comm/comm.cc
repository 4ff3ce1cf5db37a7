#include "comm/comm.h"

#include <fmt/format.h>

#include <cstdlib>

#include "comm/mpi_comm.h"

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

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

bool in_environment(const char* name) {
  return std::getenv(name) != nullptr;
}

// How many tasks the launcher started, as far as it says so.
int tasks_started() {
  int tasks = 1;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    tasks = std::max(tasks, number_in_environment(name));
  return tasks;
}

}  // namespace

std::unique_ptr<Comm> one_rank() {
  return std::make_unique<OneRank>();
}

Result<std::unique_ptr<Comm>> start_ranks() {
  const int tasks = tasks_started();
  if (tasks == 1) return one_rank();
  if (mpi_version().empty())
    return Status(StatusCode::kConfig,
                  fmt::format("started as one of {} tasks, but this eaglet was built without MPI", tasks), {},
                  "build it again with Open MPI installed (scripts/setup --mpi), or start one task");
  const bool introduced =
      in_environment("OMPI_COMM_WORLD_SIZE") || in_environment("PMIX_RANK") || in_environment("PMI_RANK");
  if (!introduced)
    return Status(StatusCode::kConfig,
                  fmt::format("srun started {} tasks that know nothing of each other", tasks), {},
                  "give srun --mpi=pmix, or start eaglet with mpirun");
  return start_mpi();
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

#include "train/rank_agreement.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/hash.h"

namespace eaglet {

Result<ResumePoint> agree_on_checkpoint(Comm& comm, const TrainOptions& options, Progress& progress) {
  ResumePoint point;
  const bool leads = comm.rank() == 0;
  if (leads) {
    const Busy busy(comm);  // checkpoints are read through
    if (options.start_over) EAGLET_RETURN_IF_ERROR(set_run_aside(options.output_dir, progress));
    EAGLET_ASSIGN_OR_RETURN(point, find_resume_point(options, progress));
  }
  std::string name = point.checkpoint ? point.checkpoint->name : "";
  EAGLET_RETURN_IF_ERROR(share_text(comm, 0, &name));
  if (leads || name.empty()) return point;
  Result<FoundCheckpoint> found = find_named(options.output_dir + "/checkpoints", name);
  if (!found.ok() || !found->check.usable)
    return Status(StatusCode::kConfig,
                  fmt::format("rank {} does not see {} as rank 0 does", comm.rank(), name),
                  options.output_dir, "all ranks need the same output directory: use a shared file system");
  point.checkpoint = std::move(*found);
  return point;
}

Status check_same_on_all_ranks(Comm& comm, const TrainerState& state, const DraftWeights& draft,
                               const std::string& output_dir) {
  if (comm.ranks() == 1) return {};
  const std::string mine =
      fmt::format("{} {} {}", state.step, hex64(xxh64(json_line(state.settings))),
                  hex64(xxh64(draft.values.data(), draft.values.size() * sizeof(float))));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> all, gather_texts(comm, mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return Status(StatusCode::kConfig,
                    fmt::format("rank {} begins with other settings or weights than rank 0", rank),
                    output_dir, "start all ranks with the same command and the same files");
  return {};
}

Result<int> rank_with_other_weights(Comm& comm, const DraftWeights& draft) {
  if (comm.ranks() == 1) return -1;
  const std::string mine = hex64(xxh64(draft.values.data(), draft.values.size() * sizeof(float)));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> all, gather_texts(comm, mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) return static_cast<int>(rank);
  return -1;
}

}  // namespace eaglet

#include "train/checkpoint.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"

namespace eaglet {
namespace {

Status fill(const std::string& directory, const TrainerState& state, const DraftWeights& draft,
            const Optimizer& optimizer, Comm& comm) {
  EAGLET_RETURN_IF_ERROR(write_draft(directory, draft));
  EAGLET_RETURN_IF_ERROR(optimizer.write(directory + "/" + kOptimizerFile, comm));
  return write_json_file(directory + "/" + kTrainerStateFile, trainer_state_to_json(state));
}

Status check_space(const std::string& checkpoints, std::uint64_t needed) {
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free, free_disk_bytes(checkpoints));
  if (free >= needed) return {};
  return Status(StatusCode::kNoSpace,
                fmt::format("a checkpoint needs {}, only {} are free",
                            human_bytes(static_cast<double>(needed)), human_bytes(static_cast<double>(free))),
                checkpoints);
}

// The same failure, with what is left and how to go on.
Status with_last_good(const Status& failed, const std::string& checkpoints, const std::string& name) {
  std::string kept = "no earlier checkpoint";
  if (const auto search = find_newest(checkpoints); search.ok() && search->newest)
    kept = "the last good one is " + search->newest->name;
  return Status(
      failed.code(), fmt::format("{} could not be saved ({}); {}", name, failed.what(), kept), failed.where(),
      failed.code() == StatusCode::kNoSpace
          ? "free some space (--keep-checkpoints N removes old ones), then run the same command again"
          : "mend the cause, then run the same command again: it goes on from there");
}

}  // namespace

std::uint64_t checkpoint_bytes(const DraftWeights& draft, std::uint64_t optimizer_state_bytes) {
  const std::uint64_t floats = draft.values.size() + draft.embed_tokens.size();
  const auto maps = static_cast<std::uint64_t>(8 * draft.vocab.size() + draft.vocab.target_vocab);
  return 4 * floats + optimizer_state_bytes + maps + (std::uint64_t{1} << 18);
}

Status save_checkpoint(const std::string& checkpoints, const TrainerState& state, const DraftWeights& draft,
                       const Optimizer& optimizer, Comm& comm,
                       const std::function<void(const std::string&)>& note) {
  const std::string name = checkpoint_name(state.step);
  EAGLET_RETURN_IF_ERROR(make_directories(checkpoints));
  Status status = check_space(checkpoints, checkpoint_bytes(draft, optimizer.state_bytes()));
  if (status.ok())
    status = write_folder(
        checkpoints, name,
        [&](const std::string& directory) { return fill(directory, state, draft, optimizer, comm); }, note);
  return status.ok() ? status : with_last_good(status, checkpoints, name);
}

Status link_checkpoint(const std::string& checkpoints, const std::string& link, std::int64_t step) {
  return replace_link(checkpoint_name(step), checkpoints + "/" + link);
}

Status prune_checkpoints(const std::string& checkpoints, std::int64_t keep, std::int64_t best_step) {
  if (keep <= 0) return {};
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, checkpoint_names(checkpoints));
  std::int64_t kept = 0;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {  // newest first
    if (!path_exists(checkpoints + "/" + *name + "/" + kCompleteFile)) continue;
    if (++kept <= keep || checkpoint_step(*name) == best_step) continue;
    // COMPLETE goes first: a kill half-way leaves a folder that is seen to be broken.
    EAGLET_RETURN_IF_ERROR(remove_all(checkpoints + "/" + *name + "/" + kCompleteFile));
    EAGLET_RETURN_IF_ERROR(remove_all(checkpoints + "/" + *name));
  }
  return {};
}

}  // namespace eaglet

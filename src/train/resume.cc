#include "train/resume.h"

#include <fmt/format.h>

#include "base/files.h"

namespace eaglet {
namespace {

std::string checkpoints_of(const std::string& output_dir) {
  return output_dir + "/checkpoints";
}

std::string reasons(const std::vector<FoundCheckpoint>& broken) {
  std::string text;
  for (const FoundCheckpoint& found : broken)
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", found.name, found.check.reason);
  return text;
}

Result<ResumePoint> named(const TrainOptions& options, Progress& progress) {
  const std::string checkpoints = checkpoints_of(options.output_dir);
  ResumePoint point;
  EAGLET_ASSIGN_OR_RETURN(point.checkpoint, find_named(checkpoints, options.resume_from));
  if (!point.checkpoint->check.usable)
    return Status(
        StatusCode::kDataLoss,
        fmt::format("{} cannot be used: {}", point.checkpoint->name, point.checkpoint->check.reason),
        point.checkpoint->path, "name another one, or leave --resume-from out for the newest whole one");
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, checkpoint_names(checkpoints));
  for (const std::string& name : names)
    if (*checkpoint_step(name) > point.checkpoint->step) point.newer.push_back(name);
  progress.note(fmt::format("going on from {}, as asked", point.checkpoint->name));
  return point;
}

Result<ResumePoint> newest(const TrainOptions& options, Progress& progress) {
  const std::string checkpoints = checkpoints_of(options.output_dir);
  EAGLET_ASSIGN_OR_RETURN(CheckpointSearch search, find_newest(checkpoints));
  const bool any = search.newest || !search.passed_over.empty();
  if (any && options.no_resume)
    return Status(StatusCode::kConfig, "there are checkpoints of an earlier run and --no-resume was given",
                  checkpoints, "give another --output-dir, or --start-over to set the earlier run aside");
  if (any && !search.newest)
    return Status(StatusCode::kConfig,
                  "no checkpoint of the earlier run is whole: " + reasons(search.passed_over), checkpoints,
                  "give --start-over to set them aside and begin at step 0 (nothing is deleted)");
  for (const FoundCheckpoint& found : search.passed_over)
    progress.note(fmt::format("{} is passed over: {}", found.name, found.check.reason));
  for (const std::string& name : search.unfinished)
    progress.note(fmt::format("{} is passed over: its writer was stopped while saving", name));
  ResumePoint point;
  point.checkpoint = std::move(search.newest);
  if (point.checkpoint) progress.note("resuming from " + point.checkpoint->name);
  return point;
}

Status check_states(const TrainOptions& options, const FoundCheckpoint& found, Progress& progress) {
  if (found.check.optimizer && found.check.trainer_state) return {};
  const std::string what = fmt::format("{} is not complete: {}", found.name, found.check.reason);
  if (!options.allow_missing_optimizer)
    return Status(
        StatusCode::kConfig, what, found.path,
        "give --allow-missing-optimizer to go on with fresh optimizer state, or --resume-from an older one");
  progress.note("warning: " + what + "; going on without it, so the run is not what it would have been");
  return {};
}

}  // namespace

Result<ResumePoint> find_resume_point(const TrainOptions& options, Progress& progress) {
  if (options.start_over) return ResumePoint{};
  EAGLET_ASSIGN_OR_RETURN(ResumePoint point,
                          options.resume_from.empty() ? newest(options, progress) : named(options, progress));
  if (point.checkpoint) EAGLET_RETURN_IF_ERROR(check_states(options, *point.checkpoint, progress));
  return point;
}

Status set_run_aside(const std::string& output_dir, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(output_dir));
  std::string aside;
  for (const std::string& name : names) {
    const bool ours = name == "checkpoints" || name == "log.jsonl" || name == "status.json" ||
                      name == "train_config.json" || name.starts_with("events.out.tfevents.");
    if (!ours) continue;
    if (aside.empty()) {
      int n = 1;
      while (path_exists(fmt::format("{}/previous-{}", output_dir, n))) ++n;
      aside = fmt::format("previous-{}", n);
      EAGLET_RETURN_IF_ERROR(make_directories(output_dir + "/" + aside));
    }
    EAGLET_RETURN_IF_ERROR(rename_synced(output_dir + "/" + name, output_dir + "/" + aside + "/" + name));
  }
  if (!aside.empty()) progress.note("the earlier run was set aside in " + output_dir + "/" + aside);
  return {};
}

Status set_newer_aside(const std::string& output_dir, const ResumePoint& point, Progress& progress) {
  for (const std::string& name : point.newer) {
    EAGLET_ASSIGN_OR_RETURN(const std::string aside, set_aside(checkpoints_of(output_dir), name, "left"));
    progress.note(name + " is now " + aside + ": the run goes on from an older one");
  }
  return {};
}

}  // namespace eaglet

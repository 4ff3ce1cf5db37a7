// Which files of a run's output are checkpoints, by the names that trainers give them.
#include "monitor/activity.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {

bool is_event_file(const std::string& path) {
  return contains(path, "events.out.tfevents.") ||
         (path.size() > 11 && path.substr(path.size() - 11) == "metrics.csv");
}

namespace {

/// "checkpoint-400", "my-run-step00500", "epoch=1-step=500": the number at the end.
std::optional<std::int64_t> step_of_name(std::string_view name) {
  const std::string low = lower(name);
  for (const char* word : {"checkpoint", "step", "ckpt"}) {
    const std::size_t at = low.rfind(word);
    if (at == std::string::npos) continue;
    std::string_view digits = std::string_view(low).substr(at + std::string_view(word).size());
    while (!digits.empty() && contains("-_=", digits.substr(0, 1))) digits.remove_prefix(1);
    if (const auto step = whole_number(digits)) return step;
  }
  return std::nullopt;
}

/// A file that is a whole checkpoint: Lightning's "epoch=1-step=500.ckpt", "step_500.pt"; without its ending.
std::string_view single_file(std::string_view name) {
  for (const std::string_view ending : {".ckpt", ".pt", ".pth"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return {};
}

}  // namespace

CheckpointSeen checkpoint_of_path(const std::string& path) {
  CheckpointSeen seen;
  std::size_t from = 0;
  for (const std::string_view part : split(path, '/')) {
    const std::size_t end = from + part.size();
    from = end + 1;
    const bool file = end >= path.size();
    if (file && seen.step >= 0) break;  // its folder's name says more
    if (const auto step = step_of_name(file ? single_file(part) : part)) {
      seen.step = *step;
      seen.path = path.substr(0, end);
    }
  }
  return seen;
}

CheckpointSeen checkpoint_of_file(const FileView& file) {
  CheckpointSeen seen = checkpoint_of_path(file.path);
  if (seen.step >= 0 || file.step < 0) return seen;
  seen.step = file.step;
  seen.path = file.path.substr(0, file.path.rfind('/'));
  return seen;
}

}  // namespace eaglet::monitor

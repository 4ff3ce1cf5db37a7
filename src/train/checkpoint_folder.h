#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// Checkpoint folders of a run (docs/formats/checkpoint.md): checkpoints/step-000200/ holds the files of the
/// draft, the optimiser and the trainer state, and last of all COMPLETE with their names, sizes and
/// checksums.
inline constexpr const char* kCompleteFile = "COMPLETE";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kTrainerStateFile = "trainer_state.json";

std::string checkpoint_name(std::int64_t step);  // "step-000200"
/// The step of a folder name; none for anything that is not exactly step-<digits>.
std::optional<std::int64_t> checkpoint_step(const std::string& name);

/// Writes COMPLETE for every file that lies in `directory` and syncs the directory.
Status seal_folder(const std::string& directory);

struct FolderCheck {
  bool whole = false;   // every file that COMPLETE names is there with its size and checksum
  bool usable = false;  // nothing is damaged; at most the optimiser's or the trainer's state is absent
  bool optimizer = false, trainer_state = false;
  std::string reason;  // why it is not whole
};
/// Reads every byte. Never fails: what is wrong is the answer.
FolderCheck check_folder(const std::string& directory);

/// A checkpoint is made under "<name>.tmp" by `fill`, sealed, and renamed. A broken folder of the same name
/// is set aside as
/// "<name>.broken-<n>", never deleted; `note` hears of it. When anything fails the temporary folder is
/// removed, and the checkpoints that were there are as before.
Status write_folder(const std::string& checkpoints, const std::string& name,
                    const std::function<Status(const std::string& directory)>& fill,
                    const std::function<void(const std::string&)>& note);

/// Removes temporary folders that a kill left. Only while holding the run's lock, and after a later save
/// succeeded.
Status remove_unfinished(const std::string& checkpoints);

struct FoundCheckpoint {
  std::int64_t step = -1;
  std::string name, path;
  FolderCheck check;
};
struct CheckpointSearch {
  std::optional<FoundCheckpoint> newest;     // by number, usable; perhaps without optimiser state
  std::vector<FoundCheckpoint> passed_over;  // newer ones that cannot be used
  std::vector<std::string> unfinished;       // temporary folders: killed while being saved
};
/// Looks from the highest number down and stops at the first usable one. Deletes nothing. A missing directory
/// has none.
Result<CheckpointSearch> find_newest(const std::string& checkpoints);

/// One asked for by name ("step-000300", "best") or path, checked. kNotFound.
Result<FoundCheckpoint> find_named(const std::string& checkpoints, const std::string& name_or_path);

/// Names of all step-<n> folders, by number ascending, unchecked.
Result<std::vector<std::string>> checkpoint_names(const std::string& checkpoints);
/// Renames a checkpoint to "<name>.<why>-<n>" with the first free n and returns the new name.
Result<std::string> set_aside(const std::string& checkpoints, const std::string& name,
                              const std::string& why);

}  // namespace eaglet

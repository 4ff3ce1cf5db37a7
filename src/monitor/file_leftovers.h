#pragma once

#include <string>
#include <vector>

#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// A file or a folder that a dead run left half done.
struct FileLeftover {
  std::string path, why;  // "half a checkpoint: model.safetensors is cut off"
  double bytes = 0, age_seconds = kNotKnown;
};

/// What lies in a run's directory, four levels deep, and is of no use to anybody: checkpoints that were cut
/// off while they were written (empty or shortened files, weights without the state that the others have),
/// temporary files, lock files that nobody holds. Only what nobody has open or locked, and what nobody has
/// changed for a minute: a run that lives may be writing. kNotFound.
Result<std::vector<FileLeftover>> file_leftovers(const std::string& directory, const ProcReader& reader);

/// Lock files of PyTorch's extension builds that nobody holds: the next run that builds or loads one waits
/// for ever. In TORCH_EXTENSIONS_DIR, else below the home directory.
std::vector<FileLeftover> stale_build_locks(const ProcReader& reader);

}  // namespace eaglet::monitor

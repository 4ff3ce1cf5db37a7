#pragma once

#include <string>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// Checkpoints and event files below a run's output directory, three levels deep; the first few thousand.
std::vector<FileView> output_files(const std::string& directory);

}  // namespace eaglet::monitor

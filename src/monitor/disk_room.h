#pragma once

#include <string>

#include "monitor/view.h"

namespace eaglet::monitor {

/// Room of the file system that `path` lies on; nothing known where that cannot be told, and where nothing
/// can be written (what is mounted read-only is always full).
DiskRoom disk_room(const std::string& path);
/// Whether both lie on one file system, so that the room of one is that of the other.
bool same_filesystem(const std::string& a, const std::string& b);

}  // namespace eaglet::monitor

#include "monitor/disk_room.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

namespace eaglet::monitor {

DiskRoom disk_room(const std::string& path) {
  DiskRoom room;
  struct statvfs disk = {};
  if (path.empty() || ::statvfs(path.c_str(), &disk) != 0 || disk.f_blocks == 0) return room;
  if ((disk.f_flag & ST_RDONLY) != 0) return room;
  room.path = path;
  room.free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  room.total = static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize);
  room.inodes_free = static_cast<double>(disk.f_favail);
  room.inodes_total = static_cast<double>(disk.f_files);
  return room;
}

bool same_filesystem(const std::string& a, const std::string& b) {
  struct stat first = {}, second = {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev;
}

}  // namespace eaglet::monitor

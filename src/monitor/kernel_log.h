#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// One record of /dev/kmsg ("6,339,5140900,-;NVRM: Xid ...") when it tells of a process killed for memory, a
/// fault of a GPU, or a task that hangs in the kernel; nullopt for all others.
std::optional<KernelLine> parse_kernel_record(std::string_view record);

/// Xids that mean the board or its link, not the program: double-bit and contained errors, row remaps,
/// NVLink, off the bus, the GPU's own processor.
bool is_fatal_xid(std::int64_t xid);

/// The kernel's log, read on from where the last poll() ended. Readable by root only on many systems, and not
/// in containers: then known() is false.
class KernelLog {
 public:
  explicit KernelLog(const std::string& path = "/dev/kmsg");
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  bool known() const { return fd_ >= 0; }
  /// Adds what is new, from `since_boot_seconds` on; at most the newest 64 lines are kept.
  void poll(double since_boot_seconds, std::vector<KernelLine>* lines);

 private:
  int fd_ = -1;
  std::string half_;
};

}  // namespace eaglet::monitor

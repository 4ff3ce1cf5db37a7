#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace eaglet::monitor {

/// Tables of /proc/PID that are read each second. Reading one again costs a third of opening it, so their
/// descriptors are kept: of all processes together at most half of what this program may open; what is beyond
/// is opened each time. A kept descriptor means one process for ever: when that is gone nothing comes, even
/// if its number belongs to another by now. Not thread-safe.
class KeptTables {
 public:
  enum class Table { kStat, kIo, kSchedule, kWaitPlace };

  KeptTables();
  ~KeptTables();
  KeptTables(const KeptTables&) = delete;
  KeptTables& operator=(const KeptTables&) = delete;

  /// Its file below /proc/PID.
  static const char* name(Table table);
  /// The table's text, valid until the next call; "" when the process is gone, or hides it. `proc`: where
  /// processes are ("/proc"; a made-up tree's files are opened each time, since they outlive their removal).
  std::string_view read(const std::string& proc, std::int64_t pid, Table table);
  /// Closes what is kept of a process.
  void forget(std::int64_t pid);
  std::size_t open() const { return open_; }

 private:
  static constexpr std::size_t kTables = 4;
  int descriptor(const std::string& proc, std::int64_t pid, Table table, bool* passing);
  std::string_view fill(int fd);
  std::map<std::int64_t, std::array<int, kTables>> kept_;  // -1: not open
  std::size_t open_ = 0, most_ = 0;
  std::string text_;
};

}  // namespace eaglet::monitor

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace eaglet::monitor {

/// Lets a waiting loop look at once when something happens to a run: one of its processes ends (a pidfd), its
/// log grows or is rotated, a file comes into its output directory (inotify). What cannot be watched so - a
/// file system over a network, which tells only of this machine's writes; limits of the machine - leaves the
/// pauses as they are: nothing depends on it. Not thread-safe.
class Wake {
 public:
  Wake();
  ~Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;

  /// What to listen to from now on; what is not named again is dropped. Empty paths are none.
  void follow(const std::vector<std::int64_t>& pids, const std::string& log_path,
              const std::string& output_dir);
  /// Returns after `seconds`, or earlier: at once when a process ended, else as soon as something happened,
  /// but not within kLeastSeconds of the time before: a log may grow all the time. True when woken. Events
  /// that came before the call count.
  bool wait(double seconds);
  static constexpr double kLeastSeconds = 1;

 private:
  void follow_processes(const std::vector<std::int64_t>& pids);
  void watch(const std::string& path, std::uint32_t events, int* watched, std::string* known);
  bool drain();
  bool wake();
  int inotify_ = -1, log_ = -1, output_ = -1;  // -1: none
  std::string log_path_, output_dir_;
  std::map<std::int64_t, int> processes_;  // pid -> pidfd
  bool happened_ = false;
  double woken_ = -1e18;  // when last
};

}  // namespace eaglet::monitor

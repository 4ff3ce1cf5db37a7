#pragma once

#include <cstdint>
#include <string>

#include "monitor/log_reader.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Follows a log: only new bytes are read, a renamed or truncated file is opened again, a file of hundreds of
/// megabytes is begun at its ends.
class LogTail {
 public:
  explicit LogTail(std::string path) : path_(std::move(path)) {}
  LogTail(const LogTail&) = delete;
  LogTail& operator=(const LogTail&) = delete;
  ~LogTail();

  /// Reads what is new. False when there is no such file (yet).
  bool poll();
  const std::string& path() const { return path_; }
  LogFacts facts() const;
  LogMoment moment() const;
  const std::string& note() const { return note_; }

 private:
  bool open_file();
  void feed(std::uint64_t from, std::uint64_t until);
  std::string path_, note_;
  int fd_ = -1;
  std::uint64_t device_ = 0, inode_ = 0, offset_ = 0;
  double mtime_ = kNotKnown;
  LogReader reader_;
};

}  // namespace eaglet::monitor

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace eaglet::monitor {

/// A small program that answers on its standard output; what it says to the error output is dropped.
class ChildOutput {
 public:
  ChildOutput() = default;
  ~ChildOutput();  // a child that still runs is killed: it is ours
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;

  /// Starts it (found by PATH) and does not wait. False: it could not be started. One at a time.
  bool start(const std::vector<std::string>& command);
  bool running() const { return pid_ > 0; }
  /// Waits until it ends, at most `patience_seconds`, then ends it. False: it failed, or took too long.
  /// At most a megabyte is taken. Its own words are short enough to wait in the pipe until they are asked
  /// for.
  bool finish(double patience_seconds, std::string* output);

 private:
  bool take_all(double deadline, std::string* output);
  pid_t pid_ = -1;
  int end_ = -1;  // of the pipe it writes into
};

}  // namespace eaglet::monitor

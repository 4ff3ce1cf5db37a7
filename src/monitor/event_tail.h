#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "monitor/log_reader.h"
#include "monitor/view.h"
#include "runlog/event_reader.h"

namespace eaglet::monitor {

/// Follows the TensorBoard event files of a directory. For runs whose text log shows no metric: the later
/// file wins on equal steps, a file whose middle is broken is read up to there.
class EventTail {
 public:
  /// Reads what is new in these files (only event files of the list are taken).
  void poll(const std::vector<FileView>& files);
  bool any() const { return any_; }
  LogFacts facts() const { return reader_.facts(); }

 private:
  struct File {
    EventReader reader;
    std::uint64_t offset = 0;
    bool broken = false;
  };
  std::map<std::string, File> files_;  // names sort by time of start
  LogReader reader_;
  bool any_ = false;
};

}  // namespace eaglet::monitor

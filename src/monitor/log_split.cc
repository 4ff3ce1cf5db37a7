#include "monitor/log_split.h"

#include <algorithm>

namespace eaglet::monitor {

void LogSplitter::add(std::string_view bytes) {
  tail_.append(bytes.substr(0, kLongest - std::min(kLongest, tail_.size())));
}

void LogSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      add(bytes);
      return;
    }
    const bool ended_line = bytes[end] == '\n';
    if (tail_.empty() && end <= kLongest) {
      sink(bytes.substr(0, end), ended_line);
    } else {
      add(bytes.substr(0, end));
      const std::string segment = std::move(tail_);
      tail_.clear();
      sink(segment, ended_line);
    }
    bytes.remove_prefix(end + 1);
  }
}

}  // namespace eaglet::monitor

#include "monitor/event_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "monitor/activity.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {
constexpr std::size_t kReadBytes = 256u << 10, kMostEventFiles = 32;
}

void EventTail::poll(const std::vector<FileView>& files) {
  std::set<std::string> names;
  for (const FileView& file : files)
    if (contains(file.path, "events.out.tfevents.")) names.insert(file.path);
  for (const std::string& name : names) {
    if (files_.size() >= kMostEventFiles && files_.count(name) == 0) continue;
    File& file = files_[name];
    if (file.broken) continue;
    const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    std::string block(kReadBytes, '\0');
    std::vector<ScalarEvent> events;
    ssize_t got = 0;
    while (!file.broken &&
           (got = ::pread(fd, block.data(), block.size(), static_cast<off_t>(file.offset))) > 0) {
      file.offset += static_cast<std::uint64_t>(got);
      file.broken =
          !file.reader.feed(std::string_view(block).substr(0, static_cast<std::size_t>(got)), &events).ok();
    }
    ::close(fd);
    // Scalars of one step come as one event or as one each: put together again.
    for (std::size_t i = 0; i < events.size();) {
      std::vector<std::pair<std::string, double>> scalars;
      const ScalarEvent& first = events[i];
      for (; i < events.size() && events[i].step == first.step; ++i)
        scalars.emplace_back(events[i].tag, events[i].value);
      reader_.add_scalars(first.step, first.wall_time_seconds, scalars);
      any_ = true;
    }
  }
}

}  // namespace eaglet::monitor

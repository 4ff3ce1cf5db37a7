#include "monitor/wake.h"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "monitor/open_data.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostFollowed = 64;

int open_pidfd(std::int64_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

}  // namespace

Wake::Wake() : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

Wake::~Wake() {
  for (const auto& [pid, fd] : processes_) ::close(fd);
  if (inotify_ >= 0) ::close(inotify_);
}

void Wake::follow(const std::vector<std::int64_t>& pids, const std::string& log_path,
                  const std::string& output_dir) {
  follow_processes(pids);
  watch(log_path, IN_MODIFY | IN_MOVE_SELF | IN_DELETE_SELF, &log_, &log_path_);
  watch(output_dir, IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO, &output_, &output_dir_);
}

void Wake::follow_processes(const std::vector<std::int64_t>& pids) {
  std::erase_if(processes_, [&](const auto& known) {
    const bool drop = std::find(pids.begin(), pids.end(), known.first) == pids.end();
    if (drop) ::close(known.second);
    return drop;
  });
  for (const std::int64_t pid : pids) {
    if (processes_.count(pid) != 0 || processes_.size() >= kMostFollowed) continue;
    if (const int fd = open_pidfd(pid); fd >= 0) processes_.emplace(pid, fd);
  }
}

/// A log that was rotated away has another file under its name: watched anew at the next call.
void Wake::watch(const std::string& path, std::uint32_t events, int* watched, std::string* known) {
  if (inotify_ < 0 || (path == *known && (path.empty() || *watched >= 0))) return;
  if (*watched >= 0) ::inotify_rm_watch(inotify_, *watched);
  *watched = -1;
  *known = path;
  if (!path.empty() && network_filesystem(path).empty())
    *watched = ::inotify_add_watch(inotify_, path.c_str(), events);
}

/// Takes what inotify has to tell.
bool Wake::drain() {
  alignas(inotify_event) char bytes[4096];
  bool any = false;
  for (ssize_t got; (got = ::read(inotify_, bytes, sizeof bytes)) > 0; any = true) {
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(bytes + at);
      const bool gone = (event->mask & (IN_MOVE_SELF | IN_DELETE_SELF | IN_IGNORED)) != 0;
      if (gone && event->wd == log_) {
        ::inotify_rm_watch(inotify_, log_);
        log_ = -1;
      }
      if (gone && event->wd == output_) output_ = -1;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  return any;
}

bool Wake::wait(double seconds) {
  const double end = monotonic_seconds() + seconds;
  while (true) {
    const double now = monotonic_seconds();
    if (happened_ && now >= woken_ + kLeastSeconds) return wake();
    const double until = happened_ ? std::min(woken_ + kLeastSeconds, end) : end;
    if (now >= end) return false;
    std::vector<pollfd> all;
    for (const auto& [pid, fd] : processes_) all.push_back({fd, POLLIN, 0});
    const std::size_t processes = all.size();
    if (inotify_ >= 0 && !happened_) all.push_back({inotify_, POLLIN, 0});
    const int ready = ::poll(all.data(), all.size(), static_cast<int>(1000 * (until - now)) + 1);
    if (ready < 0) return false;  // a signal: the caller looks what it was
    for (std::size_t i = 0; ready > 0 && i < processes; ++i)
      if (all[i].revents != 0) {
        follow_processes({});  // told once; the next look says who is left
        return wake();
      }
    if (inotify_ >= 0 && drain()) happened_ = true;
  }
}

bool Wake::wake() {
  happened_ = false;
  woken_ = monotonic_seconds();
  return true;
}

}  // namespace eaglet::monitor

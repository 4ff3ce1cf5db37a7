#include "base/wait_ready.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/interrupt.h"

namespace eaglet {

bool wait_ready(int fd, short events, double until) {
  while (true) {
    const double left_ms = 1000 * std::max(0.0, until - monotonic_seconds());
    const double slice_ms = std::min<double>(left_ms + 1, kMillisecondsBetweenInterruptLooks);
    pollfd one = {fd, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(slice_ms));
    if (ready > 0) return true;
    if ((ready < 0 && errno != EINTR) || left_ms <= 0 || interrupted()) return false;
  }
}

}  // namespace eaglet

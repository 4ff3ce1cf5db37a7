#include "extract/held_files.h"

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/interrupt.h"
#include "extract/foreign_check.h"

namespace eaglet {
namespace {
constexpr std::chrono::milliseconds kBetweenLooks(50);
}  // namespace

Status HeldFiles::settle(const StatesFolder& folder, double until,
                         const std::function<Status(const std::string& id, const std::string& real)>& free) {
  while (!lines_.empty()) {
    for (auto line = lines_.begin(); line != lines_.end();) {
      const auto real = folder.resolve(line->second);
      if (real.ok() && states_locked(*real)) {
        ++line;
        continue;
      }
      if (real.ok()) EAGLET_RETURN_IF_ERROR(free(line->first, *real));
      line = lines_.erase(line);
    }
    if (lines_.empty() || monotonic_seconds() >= until || interrupted()) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return {};
}

}  // namespace eaglet

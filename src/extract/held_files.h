#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "extract/states_folder.h"

namespace eaglet {

/// Files of states that a server named and that could not be taken or deleted when their turn came: their
/// writer held the lock, or they were not there yet. They are looked at again at the end.
class HeldFiles {
 public:
  /// The document it belongs to, and the name as the server gave it.
  void add(const std::string& id, const std::string& name) { lines_.emplace_back(id, name); }
  bool empty() const { return lines_.empty(); }
  const std::vector<std::pair<std::string, std::string>>& lines() const { return lines_; }

  /// Hands each file that nobody holds to `free` (document, real path), which takes or deletes it; files that
  /// are gone are forgotten. Waits for locks until monotonic_seconds() is `until`, or the process is
  /// interrupted: what is still locked then stays. An error of `free` ends it.
  Status settle(const StatesFolder& folder, double until,
                const std::function<Status(const std::string& id, const std::string& real)>& free);

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace eaglet

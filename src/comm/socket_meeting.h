#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rank_environment.h"

namespace eaglet {

/// Where a rank takes connections of the others.
struct RankPlace {
  std::string host, port, name;  // name: "host pid 123"
};

struct RankMeeting {
  std::string secret;             // of this run: a stranger does not know it
  std::string watch_line;         // rank 0's WatchLine::address()
  std::vector<RankPlace> places;  // by rank
};

/// All ranks meet at rank 0's port (of `environment`), each says where it can be reached, and all get to know
/// all places. `own_port` is this rank's; `watch_line` rank 0's. kUnavailable when a rank does not come in
/// time, which it names, or the port is in use; kConfig when two claim the same rank, or another number of
/// ranks.
Result<RankMeeting> meet_by_sockets(const RankEnvironment& environment, int own_port,
                                    const std::string& watch_line, double timeout_seconds);

}  // namespace eaglet

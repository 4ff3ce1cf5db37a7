#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// A socket that waits for connections.
struct Listener {
  int port = 0;
  std::int64_t user = -1;
};
/// All TCP sockets that listen, by the name their descriptors have: "socket:[12345]".
std::map<std::string, Listener> listening_sockets(const ProcReader& reader);

}  // namespace eaglet::monitor

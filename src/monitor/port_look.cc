#include "monitor/port_look.h"

#include <unistd.h>

#include <cmath>

#include "base/host_name.h"
#include "monitor/listening.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

/// Ranks that one launcher starts on several machines begin within this of each other.
constexpr double kOneStartSeconds = 120;

std::string value_of(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

bool is_this_machine(const std::string& address) {
  return address.empty() || address == "localhost" || starts_with(address, "127.") || address == "::1" ||
         address == "0.0.0.0" || same_host(address, host_name());
}

/// A rank that another launcher process started beside ours (srun, mpirun): the same port, begun together.
bool is_sibling(const ProcReader& reader, const ProcessView& holder, const std::string& port,
                double first_start_ticks) {
  const double apart =
      std::abs(holder.start_time - first_start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return apart < kOneStartSeconds && value_of(reader.environment(holder.pid), "MASTER_PORT") == port;
}

}  // namespace

PortSeen look_at_port(const ProcReader& reader, const std::map<std::string, std::string>& environment,
                      const std::set<std::int64_t>& tree, double first_start_ticks) {
  PortSeen seen;
  const std::string port = value_of(environment, "MASTER_PORT");
  const auto number = whole_number(port);
  if (!number || *number <= 0 || *number > 65535 || !is_this_machine(value_of(environment, "MASTER_ADDR")))
    return seen;
  seen.port = *number;
  std::map<std::string, Listener> listeners;
  for (const auto& [socket, listener] : listening_sockets(reader))
    if (listener.port == *number) listeners.emplace(socket, listener);
  if (listeners.empty()) return seen;
  for (const std::int64_t pid : reader.all_pids())
    for (const auto& file : reader.open_files(pid)) {
      const auto held = listeners.find(file.path);
      if (held == listeners.end()) continue;
      const auto holder = reader.basics(pid);
      if (tree.count(pid) != 0 || !holder || is_sibling(reader, *holder, port, first_start_ticks))
        return seen;
      seen.taken = true;
      seen.pid = pid;
      seen.user = held->second.user;
      seen.name = holder->name;
      seen.run_id = value_of(reader.environment(pid), "EAGLET_RUN_ID");
    }
  // Nobody whose descriptors we may read: another user's, unless it is our own user's and came just now.
  const std::int64_t user = listeners.begin()->second.user;
  if (!seen.taken && user >= 0 && user != static_cast<std::int64_t>(::getuid())) {
    seen.taken = true;
    seen.user = user;
  }
  return seen;
}

}  // namespace eaglet::monitor

#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::tcp {

/// A listening socket on all addresses of this machine, or on 127.0.0.1 only; port 0 takes a free one.
/// kUnavailable, which says so when the port is in use.
Result<int> listen_on(int port, bool this_machine_only, int most_waiting);
/// The port a socket is bound to.
int port_of(int fd);
/// One attempt. kUnavailable.
Result<int> connect_to(const std::string& host, const std::string& port);
/// The address of the other side, "10.0.0.7".
std::string peer_address(int fd);
/// A machine that loses power sends nothing: the kernel asks after it, and gives up within half a minute.
void keep_alive(int fd);
/// Small messages leave at once.
void no_delay(int fd);
bool send_line(int fd, const std::string& line);
/// One line, read byte by byte: nothing after it is taken. Empty when none came in time, or the other side is
/// gone.
std::string read_line(int fd, double timeout_seconds);
/// "host pid 123".
std::string own_name();

}  // namespace eaglet::tcp

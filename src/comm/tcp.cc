#include "comm/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/wait_ready.h"

namespace eaglet::tcp {
namespace {

constexpr std::size_t kLongestLine = 4096;
constexpr double kSecondsToConnect = 60;

Status failure(const std::string& verb, int error) {
  return Status(StatusCode::kUnavailable, fmt::format("cannot {}: {}", verb, std::strerror(error)),
                "between ranks", "check that the machines of the run can reach each other");
}

// A connect() that waits would keep a signal from being seen. Errno, 0 when it stands.
int connect_in_slices(int fd, const addrinfo& to) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int error = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof error;
    if (!wait_ready(fd, POLLOUT, monotonic_seconds() + kSecondsToConnect))
      error = interrupted() ? EINTR : ETIMEDOUT;
    else if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      error = errno;
  }
  ::fcntl(fd, F_SETFL, flags);
  return error;
}

}  // namespace

Result<int> listen_on(int port, bool this_machine_only, int most_waiting) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failure("open a socket", errno);
  const int on = 1;  // a port of a run that has just ended may be taken
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(this_machine_only ? INADDR_LOOPBACK : INADDR_ANY);
  own.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0 && ::listen(fd, most_waiting) == 0)
    return fd;
  const int error = errno;
  ::close(fd);
  if (error == EADDRINUSE)
    return Status(StatusCode::kUnavailable, fmt::format("port {} is in use on this machine", port),
                  "between ranks",
                  "another run may be there: choose another port (MASTER_PORT, torchrun --master-port)");
  return failure(fmt::format("listen on port {}", port), error);
}

int port_of(int fd) {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes);
  return ntohs(own.sin_port);
}

Result<int> connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Status(StatusCode::kUnavailable, fmt::format("cannot find {}: {}", host, ::gai_strerror(error)),
                  "between ranks", "check that the machines of the run know each other's names");
  int fd = -1, error = 0;
  for (const addrinfo* a = found; a != nullptr && fd < 0; a = a->ai_next) {
    fd = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    error = fd < 0 ? errno : connect_in_slices(fd, *a);
    if (fd >= 0 && error != 0) {
      ::close(fd);
      fd = -1;
    }
  }
  ::freeaddrinfo(found);
  if (fd < 0) return failure(fmt::format("reach {} port {}", host, port), error);
  return fd;
}

std::string peer_address(int fd) {
  sockaddr_in other{};
  socklen_t bytes = sizeof other;
  char text[INET_ADDRSTRLEN] = "";
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &bytes) == 0)
    ::inet_ntop(AF_INET, &other.sin_addr, text, sizeof text);
  return text;
}

void keep_alive(int fd) {
  const int on = 1, idle = 10, interval = 5, count = 3;
  const unsigned unanswered_milliseconds = 30000;  // of what was sent
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_milliseconds, sizeof unanswered_milliseconds);
}

void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool send_line(int fd, const std::string& line) {
  const std::string text = line.substr(0, kLongestLine) + "\n";
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string read_line(int fd, double timeout_seconds) {
  std::string line;
  const double until = monotonic_seconds() + timeout_seconds;
  while (line.size() < kLongestLine) {
    char c = 0;
    if (!wait_ready(fd, POLLIN, until) || ::recv(fd, &c, 1, 0) != 1) return {};
    if (c == '\n') return line;
    line += c;
  }
  return {};
}

std::string own_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{} pid {}", host, ::getpid());
}

}  // namespace eaglet::tcp

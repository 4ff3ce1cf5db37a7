#include "comm/watch_line.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "base/hash.h"

namespace eaglet {
namespace {

constexpr std::size_t kLongestLine = 4096;

Status socket_failure(const std::string& verb) {
  return Status(StatusCode::kUnavailable, fmt::format("cannot {}: {}", verb, std::strerror(errno)),
                "the watch line between ranks", "check that the machines of the run can reach each other");
}

// A machine that loses power sends nothing: the kernel asks after it.
void keep_alive(int fd) {
  const int on = 1, idle = 10, interval = 5, count = 3;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

bool send_line(int fd, const std::string& line) {
  const std::string text = line.substr(0, kLongestLine) + "\n";
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// One line, read byte by byte: nothing after it is taken.
std::string read_line(int fd, double timeout_seconds) {
  std::string line;
  const double until = monotonic_seconds() + timeout_seconds;
  while (line.size() < kLongestLine) {
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(1000 * std::max(0.0, until - monotonic_seconds()))) <= 0) return {};
    char c = 0;
    if (::recv(fd, &c, 1, 0) != 1) return {};
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

}  // namespace

Result<std::unique_ptr<WatchLine>> WatchLine::listen(int ranks) {
  std::unique_ptr<WatchLine> line(new WatchLine(0, ranks));
  std::random_device random;
  line->secret_ = hex64((std::uint64_t{random()} << 32) | random());
  line->listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (line->listening_ < 0) return socket_failure("open a socket");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(line->listening_, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(line->listening_, ranks) != 0)
    return socket_failure("listen on a port");
  return line;
}

std::string WatchLine::address() const {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  ::getsockname(listening_, reinterpret_cast<sockaddr*>(&own), &bytes);
  return fmt::format("{} {}", ntohs(own.sin_port), secret_);
}

Status WatchLine::accept_all(double timeout_seconds) {
  const double until = monotonic_seconds() + timeout_seconds;
  while (static_cast<int>(peers_.size()) < ranks_ - 1) {
    pollfd wait{listening_, POLLIN, 0};
    const double left = until - monotonic_seconds();
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(1000 * left) + 1) <= 0)
      return Status(StatusCode::kUnavailable,
                    fmt::format("only {} of {} ranks have come within {:.0f} s", peers_.size() + 1, ranks_,
                                timeout_seconds),
                    "the watch line between ranks", "look for errors of the other ranks above");
    const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    std::istringstream words(read_line(fd, 5));
    std::string secret;
    Peer peer;
    words >> secret >> peer.rank;
    std::getline(words >> std::ws, peer.name);
    const bool known =
        std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.rank == peer.rank; });
    if (secret != secret_ || peer.rank < 1 || peer.rank >= ranks_ || known) {
      ::close(fd);  // a stranger
      continue;
    }
    peer.fd = fd;
    keep_alive(fd);
    peers_.push_back(peer);
  }
  start_watching();
  return {};
}

Result<std::unique_ptr<WatchLine>> WatchLine::connect(const std::string& host, const std::string& address,
                                                      int rank, int ranks) {
  std::unique_ptr<WatchLine> line(new WatchLine(rank, ranks));
  std::istringstream words(address);
  std::string port;
  words >> port >> line->secret_;
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Status(StatusCode::kUnavailable, fmt::format("cannot find {}: {}", host, ::gai_strerror(error)),
                  "the watch line between ranks",
                  "check that the machines of the run know each other's names");
  int fd = -1;
  for (const addrinfo* a = found; a != nullptr && fd < 0; a = a->ai_next) {
    fd = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && ::connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
      ::close(fd);
      fd = -1;
    }
  }
  ::freeaddrinfo(found);
  if (fd < 0) return socket_failure("reach rank 0 on " + host);
  keep_alive(fd);
  Peer zero;
  zero.fd = fd;
  line->peers_.push_back(zero);
  if (!send_line(fd, fmt::format("{} {} {}", line->secret_, rank, own_name())))
    return socket_failure("speak to rank 0 on " + host);
  line->start_watching();
  return line;
}

void WatchLine::start_watching() {
  if (::pipe(wake_) == 0) thread_ = std::thread([this] { watch(); });
}

void WatchLine::stop_watching() {
  leaving_ = true;
  if (!thread_.joinable()) return;
  const char c = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_[1], &c, 1);
  thread_.join();
}

void WatchLine::leave_after_rank_zero(double most_seconds) {
  stop_watching();
  tell_all("bye");
  if (rank_ == 0) {
    for (Peer& peer : peers_) peer.fd = -1;  // left to the kernel
    return;
  }
  const double until = monotonic_seconds() + most_seconds;
  char text[64];
  for (double left = most_seconds; left > 0; left = until - monotonic_seconds()) {
    pollfd wait{peers_[0].fd, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(1000 * left) + 1) > 0 &&
        ::recv(peers_[0].fd, text, sizeof text, 0) <= 0)
      return;
  }
}

WatchLine::~WatchLine() {
  stop_watching();
  for (const Peer& peer : peers_)
    if (peer.fd >= 0) ::close(peer.fd);
  for (const int fd : {listening_, wake_[0], wake_[1]})
    if (fd >= 0) ::close(fd);
}

void WatchLine::watch() {
  while (!leaving_) {
    std::vector<pollfd> waits = {{wake_[0], POLLIN, 0}};
    std::vector<Peer*> asked;
    for (Peer& peer : peers_) {
      if (peer.done) continue;
      waits.push_back({peer.fd, POLLIN, 0});
      asked.push_back(&peer);
    }
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < asked.size() && !leaving_; ++i)
      if ((waits[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) hear(asked[i]);
  }
}

void WatchLine::hear(Peer* peer) {
  char text[512];
  const ssize_t bytes = ::recv(peer->fd, text, sizeof text, 0);
  if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (bytes <= 0) {  // the end without a word
    finish(peer);
    lose(who(*peer) + " is gone: its process ended without a word");
    return;
  }
  peer->heard.append(text, static_cast<std::size_t>(bytes));
  for (std::size_t end = peer->heard.find('\n'); end != std::string::npos; end = peer->heard.find('\n')) {
    const std::string line = peer->heard.substr(0, end);
    peer->heard.erase(0, end + 1);
    take_line(peer, line);
  }
}

void WatchLine::take_line(Peer* peer, const std::string& line) {
  if (line == "bye") {
    finish(peer);
    missing_.store(true, std::memory_order_release);
  } else if (line.starts_with("failed ")) {
    finish(peer);
    lose(who(*peer) + " failed: " + line.substr(7));
  } else if (line.starts_with("lost ")) {
    lose(line.substr(5));
  }
}

void WatchLine::finish(Peer* peer) {
  const std::lock_guard lock(mutex_);
  peer->done = true;
}

std::string WatchLine::who(const Peer& peer) const {
  return fmt::format("rank {} of {}{}", peer.rank, ranks_, peer.name.empty() ? "" : " (" + peer.name + ")");
}

void WatchLine::lose(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
  }
  broken_.store(true, std::memory_order_release);
  if (rank_ == 0) tell_all("lost " + reason);
}

void WatchLine::tell_all(const std::string& line) {
  const std::lock_guard lock(mutex_);
  for (const Peer& peer : peers_)
    if (!peer.done) send_line(peer.fd, line);
}

Status WatchLine::failure() const {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) return {};
  return Status(StatusCode::kUnavailable, reason_, {},
                "what was saved is whole: mend the cause and run the same command again");
}

void WatchLine::leave(const Status& status) {
  if (status.ok())
    tell_all("bye");
  else if (!broken())
    tell_all((rank_ == 0 ? fmt::format("lost rank 0 of {} failed: ", ranks_) : std::string("failed ")) +
             one_line(status.what() + (status.where().empty() ? "" : " (" + status.where() + ")")));
  leaving_ = true;
}

}  // namespace eaglet

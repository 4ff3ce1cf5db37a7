#include "comm/watch_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/wait_ready.h"
#include "comm/tcp.h"

namespace eaglet {
namespace {

constexpr double kSecondsToAnswer = 3;  // a process that lives, to a question

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

Result<std::unique_ptr<WatchLine>> WatchLine::listen(int ranks) {
  std::unique_ptr<WatchLine> line(new WatchLine(0, ranks));
  std::random_device random;
  line->secret_ = hex64((std::uint64_t{random()} << 32) | random());
  EAGLET_ASSIGN_OR_RETURN(line->listening_, tcp::listen_on(0, false, ranks));
  return line;
}

std::string WatchLine::address() const {
  return fmt::format("{} {}", tcp::port_of(listening_), secret_);
}

Status WatchLine::accept_all(double timeout_seconds) {
  const double until = monotonic_seconds() + timeout_seconds;
  while (static_cast<int>(peers_.size()) < ranks_ - 1) {
    const bool ready = wait_ready(listening_, POLLIN, until);
    if (!ready && interrupted()) return Status(StatusCode::kInterrupted, "stopped before all ranks had met");
    if (!ready)
      return Status(StatusCode::kUnavailable,
                    fmt::format("only {} of {} ranks have come within {:.0f} s", peers_.size() + 1, ranks_,
                                timeout_seconds),
                    "the watch line between ranks", "look for errors of the other ranks above");
    const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    std::istringstream words(tcp::read_line(fd, 5));
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
    tcp::keep_alive(fd);
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
  EAGLET_ASSIGN_OR_RETURN(const int fd, tcp::connect_to(host, port));
  tcp::keep_alive(fd);
  Peer zero;
  zero.fd = fd;
  line->peers_.push_back(zero);
  if (!tcp::send_line(fd, fmt::format("{} {} {}", line->secret_, rank, tcp::own_name())))
    return Status(StatusCode::kUnavailable, "rank 0 on " + host + " has hung up",
                  "the watch line between ranks", "look for errors of the other ranks above");
  line->start_watching();
  return line;
}

void WatchLine::start_watching() {
  if (::pipe(wake_) == 0) thread_ = std::thread([this] { watch(); });
}

void WatchLine::stop_watching() {
  leaving_ = true;
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

void WatchLine::wake() {
  const char c = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_[1], &c, 1);
}

void WatchLine::listen_to_wake() {
  char c = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_[0], &c, 1);
  if (const double waited = asked_seconds_.exchange(0); waited > 0 && !leaving_) inquire(waited);
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
    const double left = inquiry_until_ > 0 ? std::max(0.0, inquiry_until_ - monotonic_seconds()) : -1e-3;
    const int got = ::poll(waits.data(), waits.size(), static_cast<int>(1000 * left));
    if (got < 0 && errno != EINTR) return;
    if (got > 0 && waits[0].revents != 0) listen_to_wake();
    for (std::size_t i = 0; i < asked.size() && !leaving_; ++i)
      if (got > 0 && (waits[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) hear(asked[i]);
    if (inquiry_until_ > 0 && (all_answered() || monotonic_seconds() >= inquiry_until_)) judge();
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
  } else if (line == "where?") {
    tell_all(fmt::format("at {} {}", calls_.load(), busy_ ? 1 : 0));
  } else if (line == "patience") {
    ++patience_;
  } else if (std::istringstream words(line); rank_ == 0) {
    std::string word;
    double waited = 0;
    if (words >> word; word == "overdue" && words >> waited) inquire(waited);
    if (word == "at") peer->answered = static_cast<bool>(words >> peer->calls >> peer->busy);
  }
}

Status WatchLine::overdue(double waited_seconds) {
  const std::uint64_t patience = patience_;
  const double until = monotonic_seconds() + 2 * kSecondsToAnswer;
  if (rank_ == 0) {
    asked_seconds_ = waited_seconds;
    wake();
  } else {
    tell_all(fmt::format("overdue {:.3f}", waited_seconds));
  }
  while (monotonic_seconds() < until) {
    if (broken()) return failure();
    if (patience_ != patience) return {};
    ::usleep(10000);
  }
  lose(fmt::format("rank 0 of {} does not answer any more: {:.0f} s", ranks_, waited_seconds));
  return failure();
}

void WatchLine::inquire(double waited_seconds) {
  if (inquiry_until_ > 0) return;  // one at a time: it answers all
  for (Peer& peer : peers_) peer.answered = false;
  inquiry_seconds_ = waited_seconds;
  inquiry_until_ = monotonic_seconds() + kSecondsToAnswer;
  tell_all("where?");
}

bool WatchLine::all_answered() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.done || peer.answered; });
}

void WatchLine::judge() {
  inquiry_until_ = 0;
  Peer self;
  self.answered = true;
  self.busy = busy_;
  self.calls = calls_;
  self.name = tcp::own_name();
  std::vector<Peer> all = {self};
  all.insert(all.end(), peers_.begin(), peers_.end());
  std::erase_if(all, [](const Peer& peer) { return peer.done; });
  std::string silent, behind;
  std::uint64_t least = self.calls, most = self.calls;
  for (const Peer& peer : all) {
    if (!peer.answered) {
      silent += (silent.empty() ? "" : ", ") + who(peer);
      continue;
    }
    least = std::min(least, peer.calls);
    most = std::max(most, peer.calls);
  }
  bool busy = false;
  for (const Peer& peer : all)
    if (peer.answered && peer.calls == least && least < most) {
      busy = busy || peer.busy;
      behind += (behind.empty() ? "" : ", ") + who(peer);
    }
  if (!silent.empty())
    lose(fmt::format("{} does not answer any more: the others have waited {:.0f} s", silent,
                     inquiry_seconds_));
  else if (behind.empty())
    lose(fmt::format("the ranks wait for each other since {:.0f} s: a network or a device stands still",
                     inquiry_seconds_));
  else if (!busy)
    lose(fmt::format("{} has not come to what the others wait for since {:.0f} s, though it lives", behind,
                     inquiry_seconds_));
  if (!silent.empty() || !busy) return;
  tell_all("patience");
  ++patience_;
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
    if (!peer.done) tcp::send_line(peer.fd, line);
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

#include "comm/socket_comm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "comm/socket_meeting.h"
#include "comm/tcp.h"
#include "comm/watch_line.h"

namespace eaglet {
namespace {

constexpr double kSecondsToMeetBySockets = 120;
constexpr int kMillisecondsBetweenLooks = 100;
constexpr std::int64_t kBroadcastPart = 256 << 10;  // bytes on their way at once between two ranks

// Containers of one machine have its boot id; their names differ, as their devices may.
std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return boot + host;
}

class SocketComm : public Comm {
 public:
  SocketComm(const RankEnvironment& environment, double timeout_seconds)
      : rank_(environment.rank),
        ranks_(environment.ranks),
        rank_here_(environment.rank_here),
        timeout_seconds_(timeout_seconds),
        peers_(static_cast<std::size_t>(environment.ranks), -1) {}

  ~SocketComm() override {
    leave(Status(StatusCode::kInternal, "ended without a word"));
    for (const int fd : peers_)
      if (fd >= 0) ::close(fd);
  }

  Status start(const RankEnvironment& environment) {
    const double meet =
        timeout_seconds_ > 0 ? std::min(kSecondsToMeetBySockets, timeout_seconds_) : kSecondsToMeetBySockets;
    const bool here_only = environment.host == "127.0.0.1" || environment.host == "localhost";
    EAGLET_ASSIGN_OR_RETURN(const int listening, tcp::listen_on(0, here_only, ranks_));
    const Status met = connect_all(environment, listening, meet);
    ::close(listening);
    EAGLET_RETURN_IF_ERROR(met);
    EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> machines, gather_texts(*this, this_machine()));
    const std::string& mine = machines[static_cast<std::size_t>(rank_)];
    ranks_here_ = static_cast<int>(std::count(machines.begin(), machines.end(), mine));
    if (rank_here_ < 0)
      rank_here_ = static_cast<int>(std::count(machines.begin(), machines.begin() + rank_, mine));
    return {};
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int ranks_here() const override { return ranks_here_; }
  int rank_here() const override { return rank_here_; }
  Status sum(std::int64_t n, float* values) override { return sum_all(n, values); }
  Status sum(std::int64_t n, double* values) override { return sum_all(n, values); }

  // Along the ring from `root`: a rank sends a part on while the next one comes.
  Status broadcast(std::int64_t bytes, void* data, int root) override {
    count_call();
    const int distance = (rank_ - root + ranks_) % ranks_;
    const bool takes = distance > 0, gives = distance < ranks_ - 1;
    char* at = static_cast<char*>(data);
    std::int64_t taken = takes ? 0 : bytes, given = gives ? 0 : bytes;
    while (taken < bytes || given < bytes) {
      const std::int64_t in = std::min(kBroadcastPart, bytes - taken),
                         out = std::min(kBroadcastPart, (gives ? taken : bytes) - given);
      EAGLET_RETURN_IF_ERROR(exchange(next(), at + given, out, previous(), at + taken, in));
      taken += in;
      given += out;
    }
    return {};
  }
  Status send(std::int64_t bytes, const void* data, int to) override {
    return exchange(to, data, bytes, to, nullptr, 0);
  }
  Status receive(std::int64_t bytes, void* data, int from) override {
    return exchange(from, nullptr, 0, from, data, bytes);
  }
  Status check() override { return line_ && line_->broken() ? line_->failure() : Status(); }
  void count_call() override {
    if (line_) line_->count_call();
  }
  Status overdue(double waited_seconds) override { return line_->overdue(waited_seconds); }
  void set_busy(bool busy) override {
    if (line_) line_->set_busy(busy);
  }

  void leave_together() override {
    if (left_) return;
    double nothing = 0;
    const Status met = sum(1, &nothing);
    left_ = true;
    if (line_ && met.ok()) line_->leave_after_rank_zero(kSecondsToMeetBySockets);
  }
  void leave(const Status& status) override {
    if (left_) return;
    left_ = true;
    if (line_) line_->leave(status);
  }

 private:
  Status connect_all(const RankEnvironment& environment, int listening, double meet_seconds) {
    std::string address;
    if (rank_ == 0) {
      EAGLET_ASSIGN_OR_RETURN(line_, WatchLine::listen(ranks_));
      address = line_->address();
    }
    EAGLET_ASSIGN_OR_RETURN(const RankMeeting meeting,
                            meet_by_sockets(environment, tcp::port_of(listening), address, meet_seconds));
    for (const RankPlace& place : meeting.places) names_.push_back(place.name);
    if (rank_ == 0) {
      EAGLET_RETURN_IF_ERROR(line_->accept_all(meet_seconds));
    } else {
      EAGLET_ASSIGN_OR_RETURN(line_, WatchLine::connect(environment.host, meeting.watch_line, rank_, ranks_));
    }
    // Whoever listens keeps callers waiting until it takes them, so that all may call first.
    for (int rank = 0; rank < rank_; ++rank) EAGLET_RETURN_IF_ERROR(call(meeting, rank));
    return take_callers(listening, meeting.secret, meet_seconds);
  }

  Status call(const RankMeeting& meeting, int rank) {
    const RankPlace& place = meeting.places[static_cast<std::size_t>(rank)];
    Result<int> fd = tcp::connect_to(place.host, place.port);
    if (!fd.ok()) return lost_or(fd.status().at(who(rank)));
    tcp::no_delay(*fd);
    peers_[static_cast<std::size_t>(rank)] = *fd;
    if (!tcp::send_line(*fd, fmt::format("{} {}", meeting.secret, rank_))) return lost(rank);
    return {};
  }

  Status take_callers(int listening, const std::string& secret, double meet_seconds) {
    const double until = monotonic_seconds() + meet_seconds;
    for (int come = rank_ + 1; come < ranks_;) {
      EAGLET_RETURN_IF_ERROR(check());
      if (monotonic_seconds() >= until)
        return Status(StatusCode::kUnavailable,
                      fmt::format("rank {} of {}: not all ranks have called within {:.0f} s", rank_, ranks_,
                                  meet_seconds),
                      "between ranks", "see whether a firewall lets their machines reach this one");
      pollfd wait{listening, POLLIN, 0};
      if (::poll(&wait, 1, kMillisecondsBetweenLooks) <= 0) continue;
      const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      std::istringstream words(tcp::read_line(fd, 5));
      std::string theirs;
      int rank = 0;
      words >> theirs >> rank;
      if (theirs != secret || rank <= rank_ || rank >= ranks_ ||
          peers_[static_cast<std::size_t>(rank)] >= 0) {
        ::close(fd);  // a stranger
        continue;
      }
      tcp::no_delay(fd);
      peers_[static_cast<std::size_t>(rank)] = fd;
      ++come;
    }
    return {};
  }

  int next() const { return (rank_ + 1) % ranks_; }
  int previous() const { return (rank_ + ranks_ - 1) % ranks_; }

  // In round r a rank hands on the part it got in the round before: after ranks - 1 rounds each part's sum is
  // whole at one rank, after as many more all have it.
  template <class T>
  Status sum_all(std::int64_t n, T* values) {
    count_call();
    const auto begin_of = [&](int part) { return n * part / ranks_; };
    const auto size_of = [&](int part) { return begin_of(part + 1) - begin_of(part); };
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    buffer_.resize(static_cast<std::size_t>((n / ranks_ + 1) * kSize));
    T* theirs = reinterpret_cast<T*>(buffer_.data());
    for (int round = 0; round < 2 * (ranks_ - 1); ++round) {
      const bool adds = round < ranks_ - 1;
      const int out = (rank_ - round + 2 * ranks_) % ranks_, in = (out + ranks_ - 1) % ranks_;
      T* to = values + begin_of(in);
      EAGLET_RETURN_IF_ERROR(exchange(next(), values + begin_of(out), size_of(out) * kSize, previous(),
                                      adds ? theirs : to, size_of(in) * kSize));
      for (std::int64_t i = 0; adds && i < size_of(in); ++i) to[i] += theirs[i];
    }
    return {};
  }

  // Both ways at once, so that no two ranks wait for each other to read.
  Status exchange(int to, const void* out, std::int64_t out_bytes, int from, void* in,
                  std::int64_t in_bytes) {
    const char* out_at = static_cast<const char*>(out);
    char* in_at = static_cast<char*>(in);
    const double begin = monotonic_seconds();
    double patient_since = begin;
    while (out_bytes > 0 || in_bytes > 0) {
      pollfd waits[2] = {{in_bytes > 0 ? peers_[static_cast<std::size_t>(from)] : -1, POLLIN, 0},
                         {out_bytes > 0 ? peers_[static_cast<std::size_t>(to)] : -1, POLLOUT, 0}};
      const int got = ::poll(waits, 2, kMillisecondsBetweenLooks);
      if (got <= 0) {
        EAGLET_RETURN_IF_ERROR(look_around(begin, &patient_since));
        continue;
      }
      if (waits[0].revents != 0) {
        const ssize_t bytes = ::recv(waits[0].fd, in_at, static_cast<std::size_t>(in_bytes), MSG_DONTWAIT);
        if (bytes == 0 || (bytes < 0 && !again())) return lost(from);
        if (bytes > 0) in_at += bytes, in_bytes -= bytes;
      }
      if (waits[1].revents != 0) {
        const ssize_t bytes =
            ::send(waits[1].fd, out_at, static_cast<std::size_t>(out_bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (bytes < 0 && !again()) return lost(to);
        if (bytes > 0) out_at += bytes, out_bytes -= bytes;
      }
      patient_since = monotonic_seconds();
    }
    return {};
  }
  static bool again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  Status look_around(double begin, double* patient_since) {
    EAGLET_RETURN_IF_ERROR(check());
    const double now = monotonic_seconds();
    if (line_->missing() && now - begin > kSecondsAfterBye)
      return Status(StatusCode::kUnavailable, "another rank has ended before this one", "between ranks",
                    "start all ranks with the same command and the same files");
    if (timeout_seconds_ <= 0 || now - *patient_since < timeout_seconds_) return {};
    EAGLET_RETURN_IF_ERROR(overdue(now - *patient_since));
    *patient_since = monotonic_seconds();
    return {};
  }

  std::string who(int rank) const {
    return fmt::format("rank {} of {} ({})", rank, ranks_, names_[static_cast<std::size_t>(rank)]);
  }

  // A connection may break a moment before the watch line says who it was and why.
  Status lost(int rank) const {
    return lost_or(Status(StatusCode::kUnavailable, "the connection to " + who(rank) + " has ended", {},
                          "what was saved is whole: mend the cause and run the same command again"));
  }
  Status lost_or(Status failure) const {
    for (int i = 0; line_ && !line_->broken() && i < 100; ++i) ::usleep(10000);
    return line_ && line_->broken() ? line_->failure() : failure;
  }

  const int rank_, ranks_;
  int ranks_here_ = 1, rank_here_;
  const double timeout_seconds_;
  bool left_ = false;
  std::vector<int> peers_;  // sockets by rank
  std::vector<std::string> names_;
  std::vector<char> buffer_;
  std::unique_ptr<WatchLine> line_;
};

}  // namespace

Result<std::unique_ptr<Comm>> start_sockets(const RankEnvironment& environment, double timeout_seconds) {
  auto comm = std::make_unique<SocketComm>(environment, timeout_seconds);
  if (const Status started = comm->start(environment); !started.ok()) {
    comm->leave(started);  // the others get to know why
    return started;
  }
  return std::unique_ptr<Comm>(std::move(comm));
}

}  // namespace eaglet

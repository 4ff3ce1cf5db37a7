#include "comm/socket_meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/wait_ready.h"
#include "comm/tcp.h"

namespace eaglet {
namespace {

// A guest says "eaglet-ranks-1 <run> <ranks> <rank> <port> <name>". Rank 0 answers "no <why>", or, when all
// have come, "welcome <secret> <address of the watch line>", a line "<host> <port> <name>" a rank, and "end".
constexpr const char* kGreeting = "eaglet-ranks-1";
constexpr const char* kNoRun = "-";
constexpr const char* kSameHost = "-";  // as rank 0: its address would be 127.0.0.1 there
constexpr double kSecondsToGreet = 5, kSecondsToAnswer = 10;
constexpr unsigned kMicrosecondsBetweenTries = 100000;

Status interrupted_status() {
  return Status(StatusCode::kInterrupted, "stopped before all ranks had met");
}

std::string run_of(const RankEnvironment& e) {
  std::string run = e.run.empty() ? kNoRun : e.run;
  std::replace_if(
      run.begin(), run.end(), [](char c) { return c == ' ' || c == '\n' || c == '\t'; }, '_');
  return run;
}

class Host {
 public:
  Host(const RankEnvironment& environment, double timeout_seconds)
      : e_(environment),
        timeout_seconds_(timeout_seconds),
        guests_(static_cast<std::size_t>(environment.ranks)) {}
  ~Host() {
    for (const Guest& guest : guests_)
      if (guest.fd >= 0) ::close(guest.fd);
    if (listening_ >= 0) ::close(listening_);
  }

  Result<RankMeeting> gather(int own_port, const std::string& watch_line) {
    listening_ = e_.listening;
    if (listening_ < 0) {
      EAGLET_ASSIGN_OR_RETURN(listening_, tcp::listen_on(e_.port, false, e_.ranks));
    }
    guests_[0].place = {kSameHost, std::to_string(own_port), tcp::own_name()};
    const Status all = wait_for_all();
    if (!all.ok()) {
      for (std::size_t rank = 1; rank < guests_.size(); ++rank)
        if (guests_[rank].fd >= 0) tcp::send_line(guests_[rank].fd, "no " + all.what());
      return all;
    }
    return welcome(watch_line);
  }

 private:
  struct Guest {
    int fd = -1;
    RankPlace place;
  };

  Status wait_for_all() {
    const double until = monotonic_seconds() + timeout_seconds_;
    for (int come = 1; come < e_.ranks;) {
      const bool ready = wait_ready(listening_, POLLIN, until);
      if (interrupted()) return interrupted_status();
      if (!ready) return missing(come);
      const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      EAGLET_ASSIGN_OR_RETURN(const bool taken, greet(fd));
      if (taken) ++come;
    }
    return {};
  }

  // False: a stranger, or a rank of another run, which is turned away.
  Result<bool> greet(int fd) {
    std::istringstream words(tcp::read_line(fd, kSecondsToGreet));
    std::string greeting, run, port, name;
    int ranks = 0, rank = 0;
    words >> greeting >> run >> ranks >> rank >> port;
    std::getline(words >> std::ws, name);
    if (greeting != kGreeting || name.empty() || run != run_of(e_)) {
      if (!greeting.empty()) tcp::send_line(fd, "no another run, or another eaglet, meets at this port");
      ::close(fd);
      return false;
    }
    const auto at = static_cast<std::size_t>(rank);
    std::string wrong;
    if (ranks != e_.ranks)
      wrong =
          fmt::format("{} is one of {} ranks, rank 0 ({}) one of {}", name, ranks, tcp::own_name(), e_.ranks);
    else if (rank < 1 || rank >= e_.ranks || guests_[at].fd >= 0)
      wrong = fmt::format("two processes are rank {}: {} and {}", rank, name,
                          rank == 0 ? tcp::own_name() : guests_[at].place.name);
    if (!wrong.empty()) {
      tcp::send_line(fd, "no " + wrong);
      ::close(fd);
      return Status(StatusCode::kConfig, wrong, "the meeting of ranks",
                    "start every rank once, with its own RANK and the same WORLD_SIZE");
    }
    const std::string address = tcp::peer_address(fd);
    guests_[at] = {fd, {address.starts_with("127.") ? kSameHost : address, port, name}};
    return true;
  }

  Status missing(int come) const {
    std::string names;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank)
      if (guests_[rank].fd < 0) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
    return Status(StatusCode::kUnavailable,
                  fmt::format("only {} of {} ranks have come within {:.0f} s; missing: rank {}", come,
                              e_.ranks, timeout_seconds_, names),
                  fmt::format("the meeting of ranks at port {}", e_.port),
                  "look for errors of those ranks, and whether their machines reach this one");
  }

  RankMeeting welcome(const std::string& watch_line) const {
    std::random_device random;
    RankMeeting meeting;
    meeting.secret = hex64((std::uint64_t{random()} << 32) | random());
    meeting.watch_line = watch_line;
    for (const Guest& guest : guests_) meeting.places.push_back(guest.place);
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      tcp::send_line(guests_[rank].fd, fmt::format("welcome {} {}", meeting.secret, watch_line));
      for (const RankPlace& p : meeting.places)
        tcp::send_line(guests_[rank].fd, fmt::format("{} {} {}", p.host, p.port, p.name));
      tcp::send_line(guests_[rank].fd, "end");
    }
    return meeting;
  }

  const RankEnvironment& e_;
  const double timeout_seconds_;
  int listening_ = -1;
  std::vector<Guest> guests_;  // by rank
};

// Rank 0 may start later than this one.
Result<int> knock(const RankEnvironment& e, double timeout_seconds) {
  const double until = monotonic_seconds() + timeout_seconds;
  while (true) {
    Result<int> fd = tcp::connect_to(e.host, std::to_string(e.port));
    if (fd.ok()) return fd;
    if (interrupted()) return interrupted_status();
    if (monotonic_seconds() >= until)
      return Status(StatusCode::kUnavailable,
                    fmt::format("rank {} of {} has not found rank 0 at {} port {} within {:.0f} s: {}",
                                e.rank, e.ranks, e.host, e.port, timeout_seconds, fd.status().what()),
                    "the meeting of ranks",
                    "see whether rank 0 runs, and whether its machine and port can be reached");
    ::usleep(kMicrosecondsBetweenTries);
  }
}

Result<RankMeeting> read_welcome(int fd, int ranks, double timeout_seconds) {
  std::istringstream words(tcp::read_line(fd, timeout_seconds + kSecondsToAnswer));
  if (interrupted()) return interrupted_status();
  std::string answer;
  RankMeeting meeting;
  words >> answer;
  if (answer == "no") {
    std::string why;
    std::getline(words >> std::ws, why);
    return Status(StatusCode::kUnavailable, why, "the meeting of ranks",
                  "start all ranks with the same command; two runs need two ports (MASTER_PORT)");
  }
  words >> meeting.secret;
  std::getline(words >> std::ws, meeting.watch_line);
  for (int rank = 0; answer == "welcome" && rank < ranks; ++rank) {
    std::istringstream place(tcp::read_line(fd, kSecondsToAnswer));
    RankPlace p;
    place >> p.host >> p.port;
    std::getline(place >> std::ws, p.name);
    if (!p.name.empty()) meeting.places.push_back(p);
  }
  if (answer == "welcome" && static_cast<int>(meeting.places.size()) == ranks &&
      tcp::read_line(fd, kSecondsToAnswer) == "end")
    return meeting;
  return Status(
      StatusCode::kUnavailable,
      answer.empty() ? "rank 0 ended before all ranks had met" : "no rank 0 of eaglet answers there",
      "the meeting of ranks", "look for errors of rank 0; is another program at that port?");
}

}  // namespace

Result<RankMeeting> meet_by_sockets(const RankEnvironment& environment, int own_port,
                                    const std::string& watch_line, double timeout_seconds) {
  RankMeeting meeting;
  if (environment.rank == 0) {
    EAGLET_ASSIGN_OR_RETURN(meeting, Host(environment, timeout_seconds).gather(own_port, watch_line));
  } else {
    EAGLET_ASSIGN_OR_RETURN(const int fd, knock(environment, timeout_seconds));
    tcp::send_line(fd, fmt::format("{} {} {} {} {} {}", kGreeting, run_of(environment), environment.ranks,
                                   environment.rank, own_port, tcp::own_name()));
    Result<RankMeeting> met = read_welcome(fd, environment.ranks, timeout_seconds);
    ::close(fd);
    EAGLET_ASSIGN_OR_RETURN(meeting, std::move(met));
  }
  for (RankPlace& place : meeting.places)
    if (place.host == kSameHost) place.host = environment.host;
  return meeting;
}

}  // namespace eaglet

#include "apps/own_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "apps/terminal.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "comm/comm.h"
#include "comm/rank_environment.h"
#include "comm/tcp.h"

namespace eaglet::apps {
namespace {

constexpr const char* kMark = "EAGLET_OWN_RANK";
// After one has failed: until the others are asked to end, and made to. Rank 0 may be writing a checkpoint.
constexpr double kSecondsToEnd = 10, kSecondsToDie = 20, kSecondsToDieOfZero = 60;
constexpr int kMillisecondsBetweenLooks = 100;
constexpr std::size_t kMostRemembered = 1000;  // lines of ranks

// The command line as it was given.
std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// What exec takes; the pointers live as long as `words`.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string own_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  return error || !path_exists(path) ? "/proc/self/exe" : path;
}

class OwnRanks {
 public:
  OwnRanks(const OwnRanksPlan& plan, Progress& progress)
      : plan_(plan), progress_(progress), children_(static_cast<std::size_t>(plan.ranks)) {}
  ~OwnRanks() {
    for (const Child& child : children_)
      if (child.output >= 0) ::close(child.output);
  }

  Status start() {
    EAGLET_ASSIGN_OR_RETURN(const int listening, tcp::listen_on(0, true, ranks()));
    const std::vector<std::string> environment = common_environment(listening);
    for (int rank = 0; rank < ranks(); ++rank)
      if (Status started = start_one(rank, listening, environment); !started.ok()) {
        tell_all(SIGKILL);
        ::close(listening);
        return started;
      }
    ::close(listening);
    return {};
  }

  /// Until all have ended; the exit code.
  int stay() {
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.pid > 0; })) {
      listen();
      for (int rank = 0; rank < ranks(); ++rank) look_after(rank);
      pass_signals_on();
      end_the_rest();
    }
    for (int looks = 0; looks < 10 && heard_from_anybody(); ++looks) listen();  // last words
    const Child& zero = children_[0];
    if (zero.code != 0 || first_failed_ < 0) return zero.code;
    return children_[static_cast<std::size_t>(first_failed_)].code;
  }

 private:
  struct Child {
    pid_t pid = -1;   // -1: it has ended
    int output = -1;  // where it writes to; rank 0 writes where we do
    std::string heard;
    int code = 0;  // 128 + signal when one ended it
  };
  int ranks() const { return static_cast<int>(children_.size()); }

  // Ours without what names ranks, and what names these. Our own environment stays as it is: other stages of
  // a run may follow.
  std::vector<std::string> common_environment(int listening) const {
    std::random_device random;
    const std::string count = std::to_string(ranks());
    std::vector<std::string> all = {std::string(kMark) + "=1",
                                    "EAGLET_RANKS_RUN=" + hex64((std::uint64_t{random()} << 32) | random()),
                                    "WORLD_SIZE=" + count,
                                    "LOCAL_WORLD_SIZE=" + count,
                                    "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=" + std::to_string(tcp::port_of(listening)),
                                    "EAGLET_MEETING_FD=" + std::to_string(listening)};
    const std::size_t told = all.size();
    const auto replaced = [&](const std::string& name) {
      for (const char* other : {"RANK", "LOCAL_RANK", "EAGLET_MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
        if (name == other) return true;
      return std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(told),
                         [&](const std::string& ours) { return ours.starts_with(name + "="); });
    };
    for (char** at = environ; *at != nullptr; ++at)
      if (const std::string entry = *at; !replaced(entry.substr(0, entry.find('=')))) all.push_back(entry);
    return all;
  }

  Status start_one(int rank, int listening, std::vector<std::string> environment) {
    int ends[2] = {-1, -1};  // where it writes to, and where we read that
    if (rank > 0 && ::pipe2(ends, O_CLOEXEC) != 0) return errno_status("make", "a pipe", errno);
    if (rank == 0 && !plan_.output_path.empty()) {
      ends[1] = ::open(plan_.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      if (ends[1] < 0) return errno_status("create the file", plan_.output_path, errno);
    }
    for (const char* name : {"RANK=", "LOCAL_RANK="}) environment.push_back(name + std::to_string(rank));
    const std::string path = own_path();
    std::vector<std::string> words = plan_.words.empty() ? own_words() : plan_.words;
    const std::vector<char*> arguments = pointers_to(words), variables = pointers_to(environment);
    const pid_t parent = ::getpid(), pid = ::fork();
    if (pid == 0) become(rank, listening, ends[1], parent, path.c_str(), arguments.data(), variables.data());
    if (ends[1] >= 0) ::close(ends[1]);
    Child& child = children_[static_cast<std::size_t>(rank)];
    child.output = ends[0];
    child.pid = pid;
    return pid > 0 ? Status() : errno_status("start", "a rank", errno);
  }

  // In the new process. A terminal's Ctrl-C comes to us, and goes on to all ranks once; none outlives us.
  [[noreturn]] static void become(int rank, int listening, int output, pid_t parent, const char* path,
                                  char* const* arguments, char* const* variables) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    if (const int nothing = ::open("/dev/null", O_RDONLY); nothing > 0) ::dup2(nothing, STDIN_FILENO);
    if (rank == 0) ::fcntl(listening, F_SETFD, 0);  // it is handed on
    if (output >= 0) ::dup2(output, STDOUT_FILENO);
    if (rank > 0) ::dup2(output, STDERR_FILENO);
    ::execve(path, arguments, variables);
    ::_exit(127);
  }

  bool heard_from_anybody() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.output >= 0; });
  }

  void listen() {
    std::vector<pollfd> waits;
    std::vector<int> of_rank;
    for (int rank = 0; rank < ranks(); ++rank)
      if (const int fd = children_[static_cast<std::size_t>(rank)].output; fd >= 0) {
        waits.push_back({fd, POLLIN, 0});
        of_rank.push_back(rank);
      }
    if (::poll(waits.data(), waits.size(), kMillisecondsBetweenLooks) <= 0) return;
    for (std::size_t i = 0; i < waits.size(); ++i)
      if (waits[i].revents != 0) hear(of_rank[i]);
  }

  void hear(int rank) {
    Child& child = children_[static_cast<std::size_t>(rank)];
    char text[4096];
    const ssize_t bytes = ::read(child.output, text, sizeof text);
    if (bytes < 0 && errno == EINTR) return;
    if (bytes > 0) child.heard.append(text, static_cast<std::size_t>(bytes));
    if (bytes <= 0 && !child.heard.empty()) child.heard += '\n';
    for (std::size_t end = child.heard.find('\n'); end != std::string::npos; end = child.heard.find('\n')) {
      const std::string line = child.heard.substr(0, end);
      child.heard.erase(0, end + 1);
      if (said_.size() >= kMostRemembered) said_.clear();  // a run of weeks
      if (!line.empty() && said_.insert(line).second)      // what all ranks say is said once
        write_whole(STDERR_FILENO, fmt::format("[rank {}] {}\n", rank, line));
    }
    if (bytes > 0) return;
    ::close(child.output);
    child.output = -1;
  }

  void look_after(int rank) {
    Child& child = children_[static_cast<std::size_t>(rank)];
    int status = 0;
    if (child.pid <= 0 || ::waitpid(child.pid, &status, WNOHANG) != child.pid) return;
    const pid_t pid = child.pid;
    child.pid = -1;
    const bool killed = WIFSIGNALED(status) && !asked_;
    child.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (child.code == 0) return;
    const bool first = first_failed_ < 0;
    if (first) {
      first_failed_ = rank;
      failed_at_ = monotonic_seconds();
    }
    // The others may have ended because of one that was killed before it is seen here.
    if (passed_on_ == 0 && (first || killed))
      progress_.note(fmt::format("rank {} of {} (pid {}) {}", rank, ranks(), pid,
                                 killed ? fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                                                      ::strsignal(WTERMSIG(status)))
                                        : fmt::format("has ended with exit code {}", child.code)));
  }

  void pass_signals_on() {
    if (passed_on_ == 0 && interrupted()) tell_all(passed_on_ = interrupt_signal());
    if (take_save_request() && children_[0].pid > 0) ::kill(children_[0].pid, SIGUSR1);
  }

  // Ranks learn from each other that one is gone; one that waits for something else is ended here.
  void end_the_rest() {
    if (first_failed_ < 0) return;
    const double seconds = monotonic_seconds() - failed_at_;
    if (seconds > kSecondsToEnd && !asked_) {
      asked_ = true;
      tell_all(SIGTERM);
    }
    if (seconds > kSecondsToDieOfZero)
      tell_all(SIGKILL);
    else if (seconds > kSecondsToDie)
      tell_others(SIGKILL);
  }

  void tell_all(int signal) const {
    if (children_[0].pid > 0) ::kill(children_[0].pid, signal);
    tell_others(signal);
  }
  void tell_others(int signal) const {
    for (std::size_t rank = 1; rank < children_.size(); ++rank)
      if (children_[rank].pid > 0) ::kill(children_[rank].pid, signal);
  }

  const OwnRanksPlan& plan_;
  Progress& progress_;
  std::vector<Child> children_;
  std::set<std::string> said_;
  int first_failed_ = -1, passed_on_ = 0;
  bool asked_ = false;
  double failed_at_ = 0;
};

}  // namespace

bool is_own_rank() {
  return std::getenv(kMark) != nullptr;
}

Result<int> run_own_ranks(const OwnRanksPlan& plan, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const RankEnvironment already, read_rank_environment(!mpi_version().empty()));
  if (already.way != RankEnvironment::Way::kAlone)
    return Status(StatusCode::kConfig, "this is one of several ranks already, and would start more", {},
                  "leave out --gpus and --ranks, or start one task without a launcher");
  OwnRanks own(plan, progress);
  EAGLET_RETURN_IF_ERROR(own.start());
  return own.stay();
}

}  // namespace eaglet::apps

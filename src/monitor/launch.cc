#include "monitor/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/files.h"
#include "base/host_name.h"
#include "base/interrupt.h"
#include "formats/json.h"
#include "monitor/proc_reader.h"

extern char** environ;

namespace eaglet::monitor {
namespace {

constexpr double kDrainSeconds = 1;

std::string reason_of(int status) {
  if (WIFEXITED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({}){}", WTERMSIG(status), ::strsignal(WTERMSIG(status)),
                       WCOREDUMP(status) ? ", core dumped" : "");
  return "unknown";
}

/// One run under our eyes: its output goes into the log with times, its end into the record.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, LaunchResult* result) : options_(options), result_(result) {}

  Status start() {
    if (::pipe2(output_, O_CLOEXEC) != 0) return errno_status("make a pipe", "", errno);
    int problem[2];
    if (::pipe2(problem, O_CLOEXEC) != 0) return errno_status("make a pipe", "", errno);
    log_ = ::open(result_->log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_ < 0) return errno_status("write", result_->log_path, errno);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // grandchildren whose parent dies come to us, not to init
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) return errno_status("start a process", options_.command.front(), errno);
    if (pid_ == 0) become_command(parent, problem[1]);
    ::close(output_[1]);
    ::close(problem[1]);
    int error = 0;
    const ssize_t got = ::read(problem[0], &error, sizeof error);
    ::close(problem[0]);
    if (got == sizeof error) {
      ::waitpid(pid_, nullptr, 0);
      return errno_status("start", options_.command.front(), error)
          .advise("give a program that can be run, after --");
    }
    result_->pid = pid_;
    const auto process = ProcReader().basics(pid_);
    record_ = {{"schema", 1},
               {"run_id", options_.run_id},
               {"pid", pid_},
               {"start_time_ticks", process ? process->start_time : 0},
               {"supervisor_pid", ::getpid()},
               {"host", host_name()},
               {"command", options_.command},
               {"log", result_->log_path},
               {"started", wall_seconds()},
               {"ended", nullptr},
               {"exit_code", nullptr},
               {"signal", nullptr},
               {"reason", nullptr}};
    EAGLET_RETURN_IF_ERROR(
        write_file_atomic(options_.directory + "/launch.pid",
                          fmt::format("{} {:.0f}\n", pid_, process ? process->start_time : 0)));
    return write_json_file(result_->record_path, record_);
  }

  /// Until the program and its output end. `echo`: show the output on our stdout too.
  Status supervise(bool echo) {
    bool ended = false, open = true;
    int status = 0;
    rusage used = {};
    double ended_at = 0;
    while (open && (!ended || monotonic_seconds() < ended_at + kDrainSeconds)) {
      pollfd wait = {output_[0], POLLIN, 0};
      if (::poll(&wait, 1, 100) > 0) open = copy_output(echo);
      forward_signal();
      if (!ended && ::wait4(pid_, &status, WNOHANG, &used) == pid_) {
        ended = true;
        ended_at = monotonic_seconds();
      }
    }
    // It has closed its output, mostly because it is about to end.
    for (int pause_ms = 1; !ended; pause_ms = std::min(2 * pause_ms, kMillisecondsBetweenInterruptLooks)) {
      ended = ::wait4(pid_, &status, WNOHANG, &used) != 0;
      if (!ended) ::poll(nullptr, 0, pause_ms);
      forward_signal();
    }
    ::close(output_[0]);
    ::close(log_);
    result_->ended = true;
    result_->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    result_->reason = reason_of(status);
    record_["ended"] = wall_seconds();
    record_["exit_code"] = WIFEXITED(status) ? Json(WEXITSTATUS(status)) : Json(nullptr);
    record_["signal"] = WIFSIGNALED(status) ? Json(WTERMSIG(status)) : Json(nullptr);
    record_["reason"] = result_->reason;
    record_["core_dumped"] = WIFSIGNALED(status) && WCOREDUMP(status);
    record_["max_rss_bytes"] = static_cast<std::int64_t>(used.ru_maxrss) * 1024;
    record_["cpu_seconds"] = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                             1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return write_json_file(result_->record_path, record_);
  }

 private:
  [[noreturn]] void become_command(pid_t parent, int problem) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // the supervisor died in between
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
    ::setenv("EAGLET_RUN_ID", options_.run_id.c_str(), 1);
    ::setenv("PYTHONUNBUFFERED", "1", 1);
    ::dup2(output_[1], STDOUT_FILENO);
    ::dup2(output_[1], STDERR_FILENO);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : options_.command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const int error = errno;
    (void)!::write(problem, &error, sizeof error);
    ::_exit(127);
  }

  bool copy_output(bool echo) {
    char block[65536];
    const ssize_t got = ::read(output_[0], block, sizeof block);
    if (got <= 0) return got < 0 && errno == EINTR;
    std::string timed;
    for (ssize_t i = 0; i < got; ++i) {
      if (line_start_) timed += rfc3339_utc(wall_seconds()) + " ";
      line_start_ = block[i] == '\n';
      timed += block[i];
    }
    (void)!::write(log_, timed.data(), timed.size());
    if (echo) (void)!::write(STDOUT_FILENO, block, static_cast<std::size_t>(got));
    return true;
  }

  void forward_signal() {
    if (!interrupted() || forwarded_) return;
    forwarded_ = true;
    ::kill(pid_, interrupt_signal());
  }

  const LaunchOptions& options_;
  LaunchResult* result_;
  Json record_;
  int output_[2] = {-1, -1}, log_ = -1;
  pid_t pid_ = -1;
  bool line_start_ = true, forwarded_ = false;
};

/// A second start in one directory would mix two logs.
Status check_free(const std::string& record_path) {
  if (!path_exists(record_path)) return {};
  const auto record = read_json_file(record_path);
  if (!record.ok() || !record->is_object()) return {};
  const Json pid = record->value("pid", Json(nullptr)),
             ticks = record->value("start_time_ticks", Json(nullptr));
  if (!pid.is_number_integer() || !ticks.is_number() || !record->value("ended", Json(nullptr)).is_null())
    return {};
  const auto process = ProcReader().basics(pid.get<std::int64_t>());
  if (!process || process->start_time != ticks.get<double>()) return {};
  return Status(StatusCode::kBusy, fmt::format("a run is alive there (pid {})", process->pid), record_path,
                "give another --dir, or end it first");
}

/// A process of its own that outlives us; it tells over `report` whether the start went well.
Status start_detached(const LaunchOptions& options, LaunchResult* result) {
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return errno_status("make a pipe", "", errno);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_status("start a process", "", errno);
  if (pid == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::signal(SIGHUP, SIG_IGN);
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, fd);
    Supervisor supervisor(options, result);
    const Status started = supervisor.start();
    const std::string text = started.ok()
                                 ? std::to_string(result->pid)
                                 : "!" + started.what() + "\n" + started.where() + "\n" + started.todo();
    (void)!::write(report[1], text.data(), text.size());
    ::close(report[1]);
    if (started.ok()) (void)supervisor.supervise(false).ok();
    ::_exit(0);
  }
  ::close(report[1]);
  ::waitpid(pid, nullptr, 0);
  std::string text;
  char block[512];
  ssize_t got = 0;
  while ((got = ::read(report[0], block, sizeof block)) > 0)
    text.append(block, static_cast<std::size_t>(got));
  ::close(report[0]);
  if (text.empty()) return Status(StatusCode::kInternal, "the supervisor ended before it reported");
  if (text.front() == '!') {
    const std::size_t line = text.find('\n'), second = text.find('\n', line + 1);
    return Status(StatusCode::kNotFound, text.substr(1, line - 1), text.substr(line + 1, second - line - 1),
                  text.substr(second + 1));
  }
  result->pid = std::strtoll(text.c_str(), nullptr, 10);
  return {};
}

}  // namespace

Result<LaunchResult> launch_run(const LaunchOptions& options) {
  LaunchResult result;
  result.log_path = options.directory + "/log.txt";
  result.record_path = options.directory + "/launch.json";
  EAGLET_RETURN_IF_ERROR(make_directories(options.directory));
  EAGLET_RETURN_IF_ERROR(check_free(result.record_path));
  if (!options.wait) {
    EAGLET_RETURN_IF_ERROR(start_detached(options, &result));
    return result;
  }
  Supervisor supervisor(options, &result);
  EAGLET_RETURN_IF_ERROR(supervisor.start());
  EAGLET_RETURN_IF_ERROR(supervisor.supervise(true));
  return result;
}

}  // namespace eaglet::monitor

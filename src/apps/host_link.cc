#include "apps/host_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "apps/cache_dir.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "monitor/text_scan.h"
#include "monitor/verdict_wire.h"

namespace eaglet::apps {
namespace {

constexpr double kSpeakSeconds = 5, kCloseSeconds = 3, kHelloSeconds = 30;
constexpr std::string_view kFail = "EAGLET-FAIL ";
constexpr std::size_t kMostErrorBytes = 4096, kMostLineBytes = std::size_t{64} << 20;

// Runs under whatever shell the user has there, hence sh, and neither line ends nor single quotes inside. A
// directory from which nothing may be started (noexec) is passed over. The program removes the directory
// itself as soon as it runs; the trap is for all that can happen before, and for a program that cannot start
// there.
constexpr const char* kRemoteScript =
    "exec sh -c 'umask 077; echo \"EAGLET-HOST $(uname -s) $(uname -m)\"; read -r n || exit 1; "
    "for d in \"${TMPDIR:-/tmp}\" /dev/shm \"$HOME\"; do "
    "t=$(mktemp -d \"$d/eaglet-watch.XXXXXXXX\" 2>/dev/null) || continue; "
    "trap \"rm -rf \\\"\\$t\\\"\" EXIT HUP INT TERM PIPE; "
    "echo \"exit 0\" > \"$t/try\"; chmod 700 \"$t/try\"; "
    "if \"$t/try\" 2>/dev/null; then break; fi; rm -rf \"$t\"; t=; done; "
    "if test -z \"$t\"; then echo \"EAGLET-FAIL no directory there from which a program may be started\"; "
    "exit 1; fi; "
    "head -c \"$n\" > \"$t/eaglet\"; "
    "if test \"$(wc -c < \"$t/eaglet\")\" -ne \"$n\"; then echo \"EAGLET-FAIL the program did not arrive "
    "whole\"; exit 1; fi; "
    "chmod 700 \"$t/eaglet\"; "
    "\"$t/eaglet\" --host-session \"$t\" || echo \"EAGLET-FAIL the program ended with code $?\"'";

std::vector<std::string> ssh_command(const std::string& host) {
  const char* own = std::getenv("EAGLET_SSH");
  const std::string text = own != nullptr && *own != 0 ? own : "ssh";
  std::vector<std::string> command;
  for (const std::string_view word : monitor::words(text)) command.emplace_back(word);
  if (command.empty()) command.emplace_back("ssh");
  command.insert(command.end(), {"-T", "--", host, kRemoteScript});
  return command;
}

[[noreturn]] void become_ssh(const std::vector<std::string>& command, int in, int out, int error) {
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(error, STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const std::string text = "cannot start " + command[0] + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(127);
}

/// What the far end refused, in its own words.
Status status_of(const Json& error, const std::string& host) {
  const auto text = [&](const char* name) {
    const Json value = error.value(name, Json(nullptr));
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  const Json code = error.value("code", Json(nullptr));
  const std::int64_t number = code.is_number_integer() ? code.get<std::int64_t>() : 0;
  const bool known = number >= 1 && number <= static_cast<std::int64_t>(StatusCode::kInternal);
  return Status(known ? static_cast<StatusCode>(number) : StatusCode::kInternal, text("what"),
                host + (text("where").empty() ? "" : ": " + text("where")), text("todo"));
}

}  // namespace

Result<std::string> find_monitor_program(const std::string& machine) {
  const std::string name = "eaglet-monitor-" + machine;
  std::vector<std::string> places;
  if (const char* own = std::getenv("EAGLET_MONITOR_PROGRAM"); own != nullptr && *own != 0) {
    places.emplace_back(own);
  } else {
    std::error_code ignored;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    places = {(self / name).string(), (self.parent_path() / "libexec/eaglet" / name).string(),
              cache_dir() + "/" + name};
  }
  for (const std::string& place : places)
    if (path_exists(place)) return place;
  return Status(StatusCode::kNotFound,
                "the program that is sent to a host of type " + machine + " is not here",
                fmt::format("{}", fmt::join(places, ", ")),
                machine == "x86_64" ? "scripts/monitor-program makes it once"
                                    : "make it for that machine: docs/watch.md, \"On another machine\"");
}

Result<std::unique_ptr<HostLink>> HostLink::open(const std::string& host, const Json& request,
                                                 Progress& progress) {
  if (host.empty() || host.front() == '-')
    return Status(StatusCode::kUsage, "'" + host + "' names no host", "--host", "for example user@machine");
  std::unique_ptr<HostLink> link(new HostLink(host));
  EAGLET_RETURN_IF_ERROR(link->start());
  std::string machine;
  EAGLET_RETURN_IF_ERROR(link->greet(&machine));
  EAGLET_ASSIGN_OR_RETURN(const std::string path, find_monitor_program(machine));
  EAGLET_RETURN_IF_ERROR(link->send_program(path, progress));
  EAGLET_RETURN_IF_ERROR(link->send(json_line(request) + "\n", "the request", nullptr));
  EAGLET_ASSIGN_OR_RETURN(const std::optional<Json> hello, link->next(kHelloSeconds));
  if (!hello) return Status(StatusCode::kUnavailable, "the program there says nothing", host);
  if (hello->value("hello", Json(nullptr)) != Json(monitor::kWireVersion))
    return Status(StatusCode::kConfig, "the program that was sent is of another version", path,
                  "scripts/monitor-program makes it anew");
  return link;
}

Status HostLink::start() {
  int in[2], out[2], error[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0)
    return errno_status("make a pipe", "", errno);
  const std::vector<std::string> command = ssh_command(host_);
  ssh_ = ::fork();
  if (ssh_ < 0) return errno_status("start", command[0], errno);
  if (ssh_ == 0) become_ssh(command, in[0], out[1], error[1]);
  ::close(in[0]);
  ::close(out[1]);
  ::close(error[1]);
  to_ = in[1];
  from_ = out[0];
  errors_from_ = error[0];
  ::fcntl(to_, F_SETFL, O_NONBLOCK);
  ::fcntl(from_, F_SETFL, O_NONBLOCK);
  ::fcntl(errors_from_, F_SETFL, O_NONBLOCK);
  return {};
}

HostLink::~HostLink() {
  for (const int fd : {to_, from_, errors_from_})
    if (fd >= 0) ::close(fd);
  if (ssh_ <= 0) return;
  const double begin = monotonic_seconds();
  for (int sent = 0; ::waitpid(ssh_, nullptr, WNOHANG) == 0;) {
    const double passed = monotonic_seconds() - begin;
    if (passed > kCloseSeconds && sent == 0) ::kill(ssh_, SIGTERM), sent = 1;
    if (passed > 2 * kCloseSeconds && sent == 1) ::kill(ssh_, SIGKILL), sent = 2;
    ::usleep(10000);
  }
}

/// Waits for the line that the script begins with; whatever the user's own start-up files print is passed
/// over.
Status HostLink::greet(std::string* machine) {
  constexpr int kMostLines = 1000;
  for (int lines = 0; lines < kMostLines;) {
    EAGLET_ASSIGN_OR_RETURN(const std::optional<std::string> line, next_line(0.2));
    if (interrupted()) return Status(StatusCode::kInterrupted, "interrupted while connecting", host_);
    if (!line) continue;  // ssh may be asking for a password
    ++lines;
    const auto parts = monitor::words(*line);
    if (parts.size() != 3 || parts[0] != "EAGLET-HOST") continue;
    if (parts[1] != "Linux")
      return Status(StatusCode::kConfig, "that machine runs " + std::string(parts[1]) + ", not Linux", host_);
    *machine = std::string(parts[2]);
    return {};
  }
  return Status(StatusCode::kUnavailable, "no shell answers there as expected", host_);
}

Status HostLink::send_program(const std::string& path, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::string program, read_file(path));
  progress.begin("send", program.size(), "bytes");
  EAGLET_RETURN_IF_ERROR(send(std::to_string(program.size()) + "\n", "the program", nullptr));
  EAGLET_RETURN_IF_ERROR(send(program, "the program", &progress));
  progress.end("to " + host_);
  return {};
}

Status HostLink::send(std::string_view bytes, const std::string& what, Progress* progress) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "interrupted while sending " + what, host_);
    pollfd wait = {to_, POLLOUT, 0};
    if (::poll(&wait, 1, 200) <= 0) continue;
    const ssize_t wrote =
        ::write(to_, bytes.data() + done, std::min<std::size_t>(bytes.size() - done, 65536));
    if (wrote < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (wrote < 0) return last_words();
    done += static_cast<std::size_t>(wrote);
    if (progress != nullptr) progress->update(done, "");
  }
  spoke_ = monotonic_seconds();
  return {};
}

Status HostLink::last_words() {
  while (true) {
    const auto line = next_line(kCloseSeconds);
    if (!line.ok()) return line.status();
    if (!*line) return broken();
    if (monitor::starts_with(**line, kFail)) errors_ += (*line)->substr(kFail.size()) + "\n";
  }
}

Result<std::optional<Json>> HostLink::next(double seconds) {
  if (monotonic_seconds() - spoke_ > kSpeakSeconds)
    EAGLET_RETURN_IF_ERROR(send("\n", "a sign of life", nullptr));
  EAGLET_ASSIGN_OR_RETURN(const std::optional<std::string> line, next_line(seconds));
  if (!line) return std::optional<Json>();
  if (monitor::starts_with(*line, kFail)) {
    errors_ =
        line->substr(kFail.size()) + "\n" + errors_;  // what a loader said on the error stream tells more
    return broken();
  }
  auto json = parse_json(*line);
  if (!json.ok() || !json->is_object())
    return Status(StatusCode::kDataLoss, "what arrived from there is not what the program sends", host_);
  if (const auto error = json->find("error"); error != json->end() && error->is_object())
    return status_of(*error, host_);
  return std::optional<Json>(std::move(*json));
}

/// Reads at least once, so that 0 seconds take what has arrived.
Result<std::optional<std::string>> HostLink::next_line(double seconds) {
  const double until = monotonic_seconds() + seconds;
  for (bool first = true;; first = false) {
    if (const std::size_t end = lines_.find('\n'); end != std::string::npos) {
      std::string line = lines_.substr(0, end);
      lines_.erase(0, end + 1);
      return std::optional<std::string>(std::move(line));
    }
    if (ended_) return broken();
    const double left = std::max(0.0, until - monotonic_seconds());
    if ((left <= 0 && !first) || interrupted()) return std::optional<std::string>();
    pollfd wait[] = {{from_, POLLIN, 0}, {errors_from_, POLLIN, 0}};
    if (::poll(wait, 2, static_cast<int>(1000 * std::min(left, 0.2))) < 0 && errno != EINTR) return broken();
    take_errors();
    char bytes[65536];
    const ssize_t got = ::read(from_, bytes, sizeof bytes);
    if (got > 0) lines_.append(bytes, static_cast<std::size_t>(got));
    if (got == 0) ended_ = true;
    if (lines_.size() > kMostLineBytes)
      return Status(StatusCode::kDataLoss, "a line without an end arrived from there", host_);
  }
}

/// ssh's own words and those of the far shell: the last of them tell why a connection broke.
void HostLink::take_errors() {
  char bytes[4096];
  ssize_t got = -1;
  while (errors_from_ >= 0 && (got = ::read(errors_from_, bytes, sizeof bytes)) > 0)
    errors_.append(bytes, static_cast<std::size_t>(got));
  if (got == 0) {
    ::close(errors_from_);
    errors_from_ = -1;  // poll() would report its end again and again
  }
  if (errors_.size() > kMostErrorBytes) errors_.erase(0, errors_.size() - kMostErrorBytes);
}

Status HostLink::broken() {
  pollfd wait = {errors_from_, POLLIN, 0};
  if (!ended_) ::poll(&wait, 1, 300);  // what goes with the last words may come a little later
  take_errors();
  std::string last;
  for (const std::string_view line : monitor::split(errors_, '\n'))
    if (!monitor::trim(line).empty()) last = monitor::without_controls(std::string(monitor::trim(line)));
  return Status(StatusCode::kUnavailable, "the connection ended" + (last.empty() ? "" : ": " + last), host_,
                "try: ssh " + host_ + " true");
}

}  // namespace eaglet::apps

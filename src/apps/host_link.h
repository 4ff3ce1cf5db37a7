#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "base/progress.h"
#include "formats/json.h"

namespace eaglet::apps {

/// A copy of the monitor-only program at work on another machine, over the user's own ssh. It is sent there,
/// runs there, and is removed there before it begins to look; both ends close when the connection does.
///
///   here                         there
///   ssh -T HOST SCRIPT  ------>  sh: says its system and machine, makes a directory, takes the program
///   program, one request  ---->  the program: removes its directory, looks
///   a newline each 5 s  ------>  goes on for 60 s after the last
///   <------  one JSON object a line: hello, then progress, verdicts, or an error
class HostLink {
 public:
  /// `host` is what ssh takes: user@machine, or a name of ~/.ssh/config. EAGLET_SSH is the command to use
  /// instead of ssh. kUnavailable with ssh's own words, kNotFound when the program for that machine is not
  /// here, kInterrupted; what the far end refused comes as it said it.
  static Result<std::unique_ptr<HostLink>> open(const std::string& host, const Json& request,
                                                Progress& progress);
  /// Closes the connection, which ends the far end; ssh gets three seconds before it is ended.
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  /// The next object, or nullopt when none came within `seconds`. kUnavailable when the connection is gone.
  Result<std::optional<Json>> next(double seconds);

 private:
  explicit HostLink(std::string host) : host_(std::move(host)) {}
  Status start();
  Status greet(std::string* machine);
  Status send_program(const std::string& path, Progress& progress);
  Status send(std::string_view bytes, const std::string& what, Progress* progress);
  /// A line, or nullopt after `seconds`.
  Result<std::optional<std::string>> next_line(double seconds);
  void take_errors();
  /// After a write that nobody took: the far end's last words, or ssh's.
  Status last_words();
  Status broken();

  std::string host_, lines_, errors_;
  pid_t ssh_ = -1;
  int to_ = -1, from_ = -1, errors_from_ = -1;
  double spoke_ = 0;
  bool ended_ = false;
};

/// The monitor-only program for a machine ("x86_64"): EAGLET_MONITOR_PROGRAM, beside this program, in
/// ../libexec/eaglet, or in the cache, as eaglet-monitor-MACHINE. kNotFound says how it is made.
Result<std::string> find_monitor_program(const std::string& machine);

}  // namespace eaglet::apps

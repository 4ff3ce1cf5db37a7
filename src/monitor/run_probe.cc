#include "monitor/run_probe.h"

#include "base/clock.h"
#include "base/host_name.h"
#include "monitor/target.h"
#include "runlog/status_file.h"

namespace eaglet::monitor {
namespace {

constexpr double kGraceSeconds = 5;

bool over(const RunStatus& status) {
  return status.phase == "done";
}

bool living(const RunStatus& status, std::string* why) {
  if (over(status)) {
    *why = "the run is done";
    return true;
  }
  if (!status.host.empty() && !same_host(status.host, host_name())) {
    *why = "it runs on " + status.host + ", this machine is " + host_name();
    return false;
  }
  const auto process = ProcReader().basics(status.pid);
  if (!process || process->state == 'Z' || process->state == 'X') {
    *why = "process " + std::to_string(status.pid) + " is gone in phase " + status.phase;
    return false;
  }
  if (status.next_by > 0 && wall_seconds() > status.next_by + kGraceSeconds) {
    *why = "it promised a sign of life " + human_duration(wall_seconds() - status.next_by) + " ago";
    return false;
  }
  *why = "alive in phase " + status.phase;
  return true;
}

}  // namespace

Result<bool> probe_run(const std::string& run_directory, const std::string& question, std::string* why) {
  Target target;
  find_files_in(run_directory, &target);
  if (target.status_path.empty())
    return Status(StatusCode::kNotFound, "no status.json to answer a probe from", run_directory,
                  "give the output directory of an eaglet run");
  EAGLET_ASSIGN_OR_RETURN(const RunStatus status, read_status(target.status_path));
  if (!living(status, why)) return false;
  if (question == "liveness" || over(status)) return true;
  const bool ready = question == "startup" ? status.phase != "prepare" : status.step >= 0;
  if (!ready) *why = question == "startup" ? "still preparing" : "no step is done yet";
  return ready;
}

}  // namespace eaglet::monitor

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "monitor/devices.h"
#include "monitor/saved_tables.h"

extern char** environ;

namespace eaglet::monitor {
namespace {

constexpr double kAskEverySeconds = 5, kPatienceSeconds = 10;
constexpr const char* kDeviceQuery =
    "--query-gpu=index,uuid,name,utilization.gpu,power.draw,power.limit,memory.used,memory.total,temperature."
    "gpu,clocks.sm,"
    "clocks.max.sm";
constexpr const char* kProcessQuery = "--query-compute-apps=pid,used_gpu_memory,gpu_uuid";

/// Output of a program; false when it could not be started, failed, or took too long.
bool output_of(const std::vector<std::string>& command, std::string* output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    return false;
  }
  const double deadline = monotonic_seconds() + kPatienceSeconds;
  bool ended = false;
  char block[4096];
  while (!ended && monotonic_seconds() < deadline && output->size() < (1u << 20)) {
    pollfd wait = {ends[0], POLLIN, 0};
    if (::poll(&wait, 1, 200) <= 0) continue;
    const ssize_t got = ::read(ends[0], block, sizeof block);
    if (got > 0) output->append(block, static_cast<std::size_t>(got));
    ended = got <= 0;
  }
  ::close(ends[0]);
  if (!ended) ::kill(pid, SIGKILL);  // our own child, which hangs
  int status = 0;
  ::waitpid(pid, &status, 0);
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class NvidiaSmi : public DeviceSource {
 public:
  explicit NvidiaSmi(std::string program) : program_(std::move(program)) {}

  bool ask() {
    std::string devices, processes;
    if (!output_of({program_, kDeviceQuery, "--format=csv"}, &devices)) return false;
    devices_ = read_gpu_csv(devices);
    if (output_of({program_, kProcessQuery, "--format=csv"}, &processes))
      processes_ = read_compute_apps(processes, devices_);
    asked_ = monotonic_seconds();
    return true;
  }

  void read(RunView* view) override {
    if (monotonic_seconds() - asked_ > kAskEverySeconds && !ask())
      return;  // a driver that went away: unknown
    view->devices = devices_;
    view->device_processes = processes_;
  }
  std::string name() const override { return "nvidia-smi"; }

 private:
  std::string program_;
  double asked_ = -1e9;
  std::vector<DeviceView> devices_;
  std::vector<DeviceProcess> processes_;
};

std::string environment(const char* name, const char* standard) {
  const char* value = std::getenv(name);
  return value == nullptr ? standard : value;
}

}  // namespace

Result<std::unique_ptr<DeviceSource>> open_nvidia_smi(const std::string& program) {
  auto source = std::make_unique<NvidiaSmi>(program);
  if (!source->ask()) return Status(StatusCode::kUnavailable, "nvidia-smi does not answer here", program);
  return std::unique_ptr<DeviceSource>(std::move(source));
}

std::unique_ptr<DeviceSource> open_devices() {
  if (const std::string library = environment("EAGLET_NVML", "libnvidia-ml.so.1"); library != "none")
    if (auto nvml = open_nvml(library); nvml.ok()) return std::move(*nvml);
  if (const std::string program = environment("EAGLET_NVIDIA_SMI", "nvidia-smi"); program != "none")
    if (auto smi = open_nvidia_smi(program); smi.ok()) return std::move(*smi);
  return nullptr;
}

}  // namespace eaglet::monitor

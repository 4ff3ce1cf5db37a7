#include "base/clock.h"
#include "monitor/child_output.h"
#include "monitor/devices.h"
#include "monitor/saved_tables.h"

namespace eaglet::monitor {
namespace {

constexpr double kPatienceSeconds = 10;
constexpr const char* kDeviceQuery =
    "--query-gpu=index,uuid,name,utilization.gpu,power.draw,power.limit,memory.used,memory.total,temperature."
    "gpu,clocks.sm,"
    "clocks.max.sm";
constexpr const char* kLinkFields =
    ",pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max";
constexpr const char* kProcessQuery = "--query-compute-apps=pid,used_gpu_memory,gpu_uuid";

bool output_of(const std::vector<std::string>& command, std::string* output) {
  ChildOutput child;
  return child.start(command) && child.finish(kPatienceSeconds, output);
}

class NvidiaSmi : public DeviceSource {
 public:
  NvidiaSmi(std::string program, NvidiaSmiPace pace) : program_(std::move(program)), pace_(pace) {}

  bool ask() {
    std::string devices, processes;
    if (!ask_for_devices(&devices)) return false;
    devices_ = read_gpu_csv(devices);
    processes_.clear();
    if (output_of({program_, kProcessQuery, "--format=csv"}, &processes))
      processes_ = read_compute_apps(processes, devices_);
    collect(&shares_, [&](const std::string& text) { read_pmon(text, &processes_); });
    collect(&links_, [&](const std::string& text) { read_dmon_link(text, &devices_); });
    shares_.begin({program_, "pmon", "-s", "u", "-c", "1"});
    links_.begin({program_, "dmon", "-s", "t", "-c", "1"});
    asked_ = monotonic_seconds();
    return true;
  }

  void read(RunView* view) override {
    if (monotonic_seconds() - asked_ > pace_.ask_every_seconds && !ask())
      return;  // a driver that went away: unknown
    view->devices = devices_;
    view->device_processes = processes_;
  }
  std::string name() const override { return "nvidia-smi"; }

 private:
  /// A measurement that takes it a second: started at one look, read at the next one.
  struct Measurement {
    ChildOutput child;
    int refused = 0;
    void begin(const std::vector<std::string>& command) {
      constexpr int kMostRefusals = 3;  // MIG, old drivers
      if (refused < kMostRefusals && !child.start(command)) ++refused;
    }
  };

  template <class OnText>
  static void collect(Measurement* measurement, OnText on_text) {
    std::string text;
    if (!measurement->child.running()) return;
    if (measurement->child.finish(kPatienceSeconds, &text)) return on_text(text);
    ++measurement->refused;
  }

  /// Drivers that do not know one of the newer fields answer nothing at all.
  bool ask_for_devices(std::string* text) {
    if (knows_links_ && output_of({program_, std::string(kDeviceQuery) + kLinkFields, "--format=csv"}, text))
      return true;
    text->clear();
    const bool answers = output_of({program_, kDeviceQuery, "--format=csv"}, text);
    if (answers) knows_links_ = false;
    return answers;
  }

  std::string program_;
  NvidiaSmiPace pace_;
  double asked_ = -1e9;
  bool knows_links_ = true;
  Measurement shares_, links_;
  std::vector<DeviceView> devices_;
  std::vector<DeviceProcess> processes_;
};

}  // namespace

Result<std::unique_ptr<DeviceSource>> open_nvidia_smi(const std::string& program, NvidiaSmiPace pace) {
  auto source = std::make_unique<NvidiaSmi>(program, pace);
  if (!source->ask()) return Status(StatusCode::kUnavailable, "nvidia-smi does not answer here", program);
  return std::unique_ptr<DeviceSource>(std::move(source));
}

}  // namespace eaglet::monitor

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Where GPU readings come from.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;
  /// Fills devices and device_processes of the view. What cannot be read is unknown.
  virtual void read(RunView* view) = 0;
  virtual std::string name() const = 0;
};

/// NVIDIA's management library, loaded when the program runs. Every symbol may be missing. kUnavailable when
/// the library or a driver is not there.
Result<std::unique_ptr<DeviceSource>> open_nvml(const std::string& library);
/// How often nvidia-smi is asked: it costs some processes each time.
struct NvidiaSmiPace {
  double ask_every_seconds = 5;
};
/// nvidia-smi's tables: devices and their processes, and with the answer before this one what keeps which
/// process busy and what crosses the links, which it takes a second to measure. kUnavailable when the program
/// is not there.
Result<std::unique_ptr<DeviceSource>> open_nvidia_smi(const std::string& program, NvidiaSmiPace pace = {});
/// NVML, else nvidia-smi, else nullptr: a machine without GPUs, judged by the rules for CPUs.
/// EAGLET_NVML and EAGLET_NVIDIA_SMI name others ("none" switches one off).
std::unique_ptr<DeviceSource> open_devices();

}  // namespace eaglet::monitor

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
/// How often an exporter is asked, how long for an answer, and when again after it gave none.
struct GpuExporterPace {
  double ask_every_seconds = 5, patience_seconds = 3, rest_seconds = 30;
};
/// Somebody's exporter of GPU metrics (gpu_page.h) at "http://HOST:PORT", with or without "/metrics". kUsage
/// for another kind of address, kUnavailable with the reason when nothing of the kind answers there.
Result<std::unique_ptr<DeviceSource>> open_gpu_exporter(const std::string& url, GpuExporterPace pace = {});
/// `exporter`, or EAGLET_GPU_METRICS, when one of them names an address: its status when it does not answer.
/// Else NVML, else nvidia-smi, else an exporter that listens here on its usual port, else nullptr: a machine
/// without GPUs, judged by the rules for CPUs. EAGLET_NVML and EAGLET_NVIDIA_SMI name others; "none" in one
/// of the three variables switches that one off.
Result<std::unique_ptr<DeviceSource>> open_devices(const std::string& exporter = {});

}  // namespace eaglet::monitor

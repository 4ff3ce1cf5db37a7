#include "monitor/devices.h"

#include <cstdlib>

namespace eaglet::monitor {
namespace {

// Where dcgm-exporter and nvidia_gpu_exporter listen unless told otherwise. nvitop-exporter's 8000 is also
// that of model servers: it must be named.
constexpr const char* kUsualExporters[] = {"http://127.0.0.1:9400", "http://127.0.0.1:9835"};

std::string environment(const char* name, const char* standard) {
  const char* value = std::getenv(name);
  return value == nullptr ? standard : value;
}

}  // namespace

Result<std::unique_ptr<DeviceSource>> open_devices(const std::string& exporter) {
  const std::string told = environment("EAGLET_GPU_METRICS", "");
  if (!exporter.empty()) return open_gpu_exporter(exporter);
  if (!told.empty() && told != "none") return open_gpu_exporter(told);
  if (const std::string library = environment("EAGLET_NVML", "libnvidia-ml.so.1"); library != "none")
    if (auto nvml = open_nvml(library); nvml.ok()) return nvml;
  if (const std::string program = environment("EAGLET_NVIDIA_SMI", "nvidia-smi"); program != "none")
    if (auto smi = open_nvidia_smi(program); smi.ok()) return smi;
  if (told != "none")
    for (const char* url : kUsualExporters)
      if (auto found = open_gpu_exporter(url); found.ok()) return found;
  return std::unique_ptr<DeviceSource>();
}

}  // namespace eaglet::monitor

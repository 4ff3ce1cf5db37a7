#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// One GPU as an exporter for Prometheus tells of it.
struct ExportedGpu {
  DeviceView view;
  std::map<std::int64_t, double> xids;  // how often each came; of dcgm-exporter only which one came last
};

/// What other people's GPU exporters write for Prometheus: dcgm-exporter, nvidia_gpu_exporter,
/// nvitop-exporter.
struct GpuPage {
  std::string exporter;                                 // "dcgm-exporter"; "": the page is of none of them
  std::vector<ExportedGpu> gpus;                        // by index
  std::optional<std::vector<DeviceProcess>> processes;  // not all of them tell
};

/// Unknown names are passed over, values that mean "not told" too; units become ours.
GpuPage read_gpu_page(std::string_view text);

/// The usual power limit of a board by its name, for exporters that do not tell it; NaN for one that is not
/// known.
double usual_power_limit(const std::string& name);

}  // namespace eaglet::monitor

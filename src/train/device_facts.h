#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// What the paper plan of a training step takes an accelerator for. Numbers of makers' data sheets, but for
/// `gemm_flops`: what bf16 products of large matrices really reach. Sources: docs/gpu-plan.md.
struct DeviceFacts {
  std::string name, label;
  double memory_bytes = 0, bandwidth = 0;  // bytes; bytes per second
  double sheet_flops = 0, gemm_flops = 0;  // bf16 with fp32 sums, dense, per second
  bool gemm_is_measured = false;           // else gemm_flops is an assumed share of the data sheet
  double nvlink_bandwidth = 0;             // bytes per second that an all-reduce of 8 moves; 0 = it has none
  double pcie_bandwidth = 0;               // the same over PCIe, and what the host can send
  double bandwidth_share = 0.85;           // of `bandwidth`, what streaming kernels reach
  double attention_share = 0.6;            // of gemm_flops, what attention reaches
  double launch_seconds = 3e-6;            // of a kernel, in a graph
  std::string origin = "data sheet, assumed shares";  // of the four numbers above and gemm_flops
};

const std::vector<DeviceFacts>& known_devices();
/// "h200", "rtx-pro-6000", ... kUsage names those there are.
Result<DeviceFacts> find_device(const std::string& name);
/// By the name that the driver gives a device, "NVIDIA H100 80GB HBM3"; nullptr: it is none of the table.
const DeviceFacts* facts_of_driver_name(const std::string& driver_name);
/// The accelerator with what was measured on it: a JSON object with "device" and any of gemm_tflops,
/// bandwidth_share, attention_share, launch_us. kNotFound, kDataLoss, kConfig (of another device, or numbers
/// that cannot be).
Result<DeviceFacts> calibrate(DeviceFacts device, const std::string& path);

/// What carries the gradients.
enum class Link { kNvlink, kPcie, kEthernet };
Result<Link> parse_link(const std::string& name);
const char* link_name(Link link);

}  // namespace eaglet

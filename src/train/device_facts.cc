#include "train/device_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "formats/json.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {

char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

constexpr double kGb = 1e9, kTera = 1e12, kGib = 1024.0 * 1024 * 1024;

DeviceFacts device(const char* name, const char* label, double gib, double tb_per_second, double sheet_tflops,
                   double gemm_tflops, bool measured, double nvlink_gb, double pcie_gb) {
  DeviceFacts a;
  a.name = name;
  a.label = label;
  a.memory_bytes = gib * kGib;
  a.bandwidth = tb_per_second * kTera;
  a.sheet_flops = sheet_tflops * kTera;
  a.gemm_flops = gemm_tflops * kTera;
  a.gemm_is_measured = measured;
  a.nvlink_bandwidth = nvlink_gb * kGb;
  a.pcie_bandwidth = pcie_gb * kGb;
  return a;
}

}  // namespace

const std::vector<DeviceFacts>& known_devices() {
  static const std::vector<DeviceFacts> all = {
      device("a100", "A100 SXM 80 GB", 80, 2.039, 312, 255, false, 230, 20),
      device("h100", "H100 SXM 80 GB", 79.6, 3.35, 989, 740, false, 370, 40),
      device("h200", "H200 SXM 141 GB", 139, 4.8, 989, 790, true, 370, 40),
      device("b200", "B200 SXM", 180, 8.0, 2250, 1700, false, 700, 40),
      device("rtx-pro-6000", "RTX PRO 6000 Blackwell 96 GB", 95, 1.792, 503.8, 400, false, 0, 40),
      device("4090", "RTX 4090 24 GB", 23.5, 1.008, 165.2, 150, false, 0, 20)};
  return all;
}

Result<DeviceFacts> find_device(const std::string& name) {
  std::vector<std::string> names;
  for (const DeviceFacts& one : known_devices()) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  return Status(StatusCode::kUsage, "there is no device \"" + name + "\" in the plan's table", "--device",
                fmt::format("use {}", fmt::join(names, ", ")));
}

const DeviceFacts* facts_of_driver_name(const std::string& driver_name) {
  std::string text = " " + driver_name + " ";
  for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? ascii_lower(c) : ' ';
  for (const DeviceFacts& one : known_devices()) {
    std::string name = " " + one.name + " ";
    std::replace(name.begin(), name.end(), '-', ' ');
    if (text.find(name) != std::string::npos) return &one;
  }
  return nullptr;
}

namespace {

// A number of the file, when it is there: must lie in (0, most].
Status take(const Json& json, const char* key, double most, double unit, const std::string& path,
            double* to) {
  const Json* found = json_field(json, key);
  if (found == nullptr) return {};
  const double value = found->is_number() ? found->get<double>() : 0;
  if (!(value > 0) || value > most)
    return Status(
        StatusCode::kConfig,
        fmt::format("\"{}\" is {}, not a number above 0 and up to {}", key, json_shown(*found), most), path,
        "measure again");
  *to = value * unit;
  return {};
}

}  // namespace

Result<DeviceFacts> calibrate(DeviceFacts device, const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  const Json* of = json_field(json, "device");
  if (of == nullptr || !of->is_string() || of->get<std::string>() != device.name)
    return Status(StatusCode::kConfig,
                  "the measurements are of " + (of != nullptr ? json_shown(*of) : std::string("no device")) +
                      ", the plan is for \"" + device.name + "\"",
                  path, "give the measurements of that device, or plan for the one measured");
  const double before = device.gemm_flops;
  EAGLET_RETURN_IF_ERROR(
      take(json, "gemm_tflops", device.sheet_flops / kTera, kTera, path, &device.gemm_flops));
  EAGLET_RETURN_IF_ERROR(take(json, "bandwidth_share", 1, 1, path, &device.bandwidth_share));
  EAGLET_RETURN_IF_ERROR(take(json, "attention_share", 1, 1, path, &device.attention_share));
  EAGLET_RETURN_IF_ERROR(take(json, "launch_us", 1000, 1e-6, path, &device.launch_seconds));
  device.gemm_is_measured = device.gemm_is_measured || device.gemm_flops != before;
  device.origin = "measured: " + path;
  return device;
}

Result<Link> parse_link(const std::string& name) {
  for (const Link link : {Link::kNvlink, Link::kPcie, Link::kEthernet})
    if (name == link_name(link)) return link;
  return Status(StatusCode::kUsage, "there is no link '" + name + "'", "--link",
                "use nvlink, pcie or ethernet");
}

const char* link_name(Link link) {
  switch (link) {
    case Link::kNvlink:
      return "nvlink";
    case Link::kPcie:
      return "pcie";
    case Link::kEthernet:
      return "ethernet";
  }
  return "";
}

}  // namespace eaglet

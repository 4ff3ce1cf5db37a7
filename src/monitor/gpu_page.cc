#include "monitor/gpu_page.h"

#include <algorithm>
#include <cmath>

#include "monitor/prometheus.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr std::size_t kMostGpus = 256, kMostProcesses = 4096;

struct Field {
  const char* name;  // without a counter's "_total"
  double DeviceView::*at;
  double scale = 1;
  bool percent = false;  // beyond 100 it is garbage
};
// Names and units as their documentation has them. dcgm-exporter names its fields after DCGM's, which got
// units into some of their names in 2026; nvidia_gpu_exporter after nvidia-smi's queries, in base units;
// nvitop-exporter has the unit last.
constexpr Field kFields[] = {{"DCGM_FI_DEV_GPU_UTIL", &DeviceView::busy_pct, 1, true},
                             {"DCGM_FI_DEV_POWER_USAGE", &DeviceView::power_w},
                             {"DCGM_FI_DEV_BOARD_POWER_WATTS", &DeviceView::power_w},
                             {"DCGM_FI_DEV_ENFORCED_POWER_LIMIT", &DeviceView::limit_w},
                             {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", &DeviceView::energy_j, 1e-3},
                             {"DCGM_FI_DEV_FB_USED", &DeviceView::used_bytes, kMiB},
                             {"DCGM_FI_DEV_FB_TOTAL", &DeviceView::total_bytes, kMiB},
                             {"DCGM_FI_DEV_FB_RESERVED", &DeviceView::reserved_bytes, kMiB},
                             {"DCGM_FI_DEV_GPU_TEMP", &DeviceView::celsius},
                             {"DCGM_FI_DEV_GPU_TEMP_CELSIUS", &DeviceView::celsius},
                             {"DCGM_FI_DEV_SLOWDOWN_TEMP", &DeviceView::slowdown_celsius},
                             {"DCGM_FI_DEV_SM_CLOCK", &DeviceView::clock_mhz},
                             {"DCGM_FI_DEV_MAX_SM_CLOCK", &DeviceView::max_clock_mhz},
                             {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", &DeviceView::tensor_pct, 100, true},
                             {"DCGM_FI_DEV_PCIE_LINK_GEN", &DeviceView::link_generation},
                             {"DCGM_FI_DEV_PCIE_MAX_LINK_GEN", &DeviceView::max_link_generation},
                             {"DCGM_FI_DEV_PCIE_LINK_WIDTH", &DeviceView::link_width},
                             {"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", &DeviceView::max_link_width},
                             {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", &DeviceView::ecc_uncorrected},
                             {"DCGM_FI_DEV_ROW_REMAP_PENDING", &DeviceView::remap_pending},
                             {"nvidia_smi_utilization_gpu_ratio", &DeviceView::busy_pct, 100, true},
                             {"nvidia_smi_power_draw_watts", &DeviceView::power_w},
                             {"nvidia_smi_enforced_power_limit_watts", &DeviceView::limit_w},
                             {"nvidia_smi_energy_joules", &DeviceView::energy_j},
                             {"nvidia_smi_memory_used_bytes", &DeviceView::used_bytes},
                             {"nvidia_smi_memory_total_bytes", &DeviceView::total_bytes},
                             {"nvidia_smi_memory_reserved_bytes", &DeviceView::reserved_bytes},
                             {"nvidia_smi_temperature_gpu", &DeviceView::celsius},
                             {"nvidia_smi_clocks_current_sm_clock_hz", &DeviceView::clock_mhz, 1e-6},
                             {"nvidia_smi_clocks_max_sm_clock_hz", &DeviceView::max_clock_mhz, 1e-6},
                             {"nvidia_smi_pcie_link_gen_current", &DeviceView::link_generation},
                             {"nvidia_smi_pcie_link_gen_max", &DeviceView::max_link_generation},
                             {"nvidia_smi_pcie_link_width_current", &DeviceView::link_width},
                             {"nvidia_smi_pcie_link_width_max", &DeviceView::max_link_width},
                             {"nvidia_smi_pcie_throughput_rx_bytes_per_second", &DeviceView::pcie_in},
                             {"nvidia_smi_pcie_throughput_tx_bytes_per_second", &DeviceView::pcie_out},
                             {"nvidia_smi_ecc_errors_uncorrected_volatile", &DeviceView::ecc_uncorrected},
                             {"nvidia_smi_remapped_rows_pending", &DeviceView::remap_pending},
                             {"gpu_utilization_Percentage", &DeviceView::busy_pct, 1, true},
                             {"gpu_power_usage_W", &DeviceView::power_w},
                             {"gpu_power_limit_W", &DeviceView::limit_w},
                             {"gpu_memory_used_MiB", &DeviceView::used_bytes, kMiB},
                             {"gpu_memory_total_MiB", &DeviceView::total_bytes, kMiB},
                             {"gpu_temperature_C", &DeviceView::celsius},
                             {"gpu_clock_sm_MHz", &DeviceView::clock_mhz},
                             {"gpu_pcie_rx_throughput_MiBps", &DeviceView::pcie_in, kMiB},
                             {"gpu_pcie_tx_throughput_MiBps", &DeviceView::pcie_out, kMiB}};
// Taken where the page has none of the above for it.
constexpr Field kSecondChoice[] = {{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", &DeviceView::busy_pct, 100, true},
                                   {"DCGM_FI_DEV_POWER_MGMT_LIMIT", &DeviceView::limit_w},
                                   {"DCGM_FI_DEV_RETIRED_PENDING", &DeviceView::remap_pending},
                                   {"nvidia_smi_power_draw_average_watts", &DeviceView::power_w},
                                   {"nvidia_smi_power_draw_instant_watts", &DeviceView::power_w},
                                   {"nvidia_smi_power_limit_watts", &DeviceView::limit_w},
                                   {"nvidia_smi_retired_pages_pending", &DeviceView::remap_pending}};

struct Exporter {
  const char* name;
  const char* prefix;
};
constexpr Exporter kExporters[] = {{"dcgm-exporter", "DCGM_FI_"},
                                   {"nvidia_gpu_exporter", "nvidia_smi_"},
                                   {"nvitop-exporter", "gpu_"},
                                   {"nvitop-exporter", "process_gpu_"}};

std::string label(const PrometheusSample& sample, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = sample.labels.find(name); found != sample.labels.end()) return found->second;
  return {};
}

std::string_view without_total(std::string_view name) {
  if (name.ends_with("_total")) name.remove_suffix(6);
  return name;
}

/// DCGM's marks for what it does not know: the last values that an int32, an int64 and a double of it can
/// have.
bool is_told(const PrometheusSample& sample) {
  if (!std::isfinite(sample.value) || sample.value < 0 || sample.value >= 140737488355328.0) return false;
  const bool blank = sample.value >= 2147483632.0 && sample.value <= 2147483647.0;
  return !(blank && starts_with(sample.name, "DCGM_FI_DEV_") && !contains(sample.name, "ENERGY"));
}

class PageReading {
 public:
  GpuPage page(std::string_view text) {
    const auto samples = read_foreign_metrics(text, {"DCGM_FI_", "nvidia_smi_", "gpu_", "process_gpu_"});
    for (const PrometheusSample& sample : samples) take_identity(sample);
    for (const PrometheusSample& sample : samples) take(sample, kFields);
    for (const PrometheusSample& sample : samples) take(sample, kSecondChoice);
    for (const PrometheusSample& sample : samples) take_more(sample);
    return finish();
  }

 private:
  struct Known {
    ExportedGpu gpu;
    double free_bytes = kNotKnown;
  };
  using ProcessKey = std::pair<std::int64_t, std::string>;  // pid, the GPU's key

  /// By its UUID, else by its index; nullptr for what is of no whole GPU (an instance of MIG).
  Known* find(const PrometheusSample& sample, bool make = false) {
    if (!label(sample, {"GPU_I_ID", "gpu_instance_id"}).empty()) return nullptr;
    const std::string index = label(sample, {"gpu", "index"});
    if (contains(index, ":")) return nullptr;  // nvitop's "0:1"
    const std::string key = key_of(sample);
    if (key.empty()) return nullptr;
    const auto found = gpus_.find(key);
    if (found != gpus_.end()) return &found->second;
    if (!make || gpus_.size() >= kMostGpus) return nullptr;
    order_.push_back(key);
    return &gpus_[key];
  }
  static std::string key_of(const PrometheusSample& sample) {
    const std::string uuid = label(sample, {"UUID", "uuid"});
    return uuid.empty() ? label(sample, {"gpu", "index"}) : uuid;
  }

  /// Only what one of the tables knows makes a GPU: "gpu_" begins the names of many programs.
  static bool is_known(const PrometheusSample& sample) {
    const std::string_view name = without_total(sample.name);
    const auto is = [name](const Field& field) { return name == field.name; };
    return std::any_of(std::begin(kFields), std::end(kFields), is) ||
           std::any_of(std::begin(kSecondChoice), std::end(kSecondChoice), is) ||
           sample.name == "nvidia_smi_gpu_info";
  }

  void take_identity(const PrometheusSample& sample) {
    if (!is_known(sample)) return;
    // An instance tells that its GPU is cut into such.
    if (!label(sample, {"GPU_I_ID"}).empty()) {
      PrometheusSample whole = sample;
      whole.labels.erase("GPU_I_ID");
      if (Known* gpu = find(whole, true); gpu != nullptr) gpu->gpu.view.mig = true;
      return;
    }
    Known* gpu = find(sample, true);
    if (gpu == nullptr) return;
    for (const Exporter& exporter : kExporters)
      if (starts_with(sample.name, exporter.prefix)) exporter_ = exporter.name;
    DeviceView& view = gpu->gpu.view;
    if (const auto index = whole_number(label(sample, {"gpu", "index"}));
        index && *index >= 0 && *index < 4096)
      view.index = *index;
    if (const std::string name = label(sample, {"modelName", "devicename", "name"}); !name.empty())
      view.name = name.substr(0, 200);
    if (const std::string uuid = label(sample, {"UUID", "uuid"}); !uuid.empty())
      view.id = (starts_with(uuid, "GPU-") ? uuid : "GPU-" + uuid).substr(0, 100);
  }

  template <std::size_t N>
  void take(const PrometheusSample& sample, const Field (&fields)[N]) {
    const std::string_view name = without_total(sample.name);
    for (const Field& field : fields) {
      if (name != field.name || !is_told(sample)) continue;
      const double value = sample.value * field.scale;
      Known* gpu = find(sample);
      if (gpu == nullptr || (field.percent && value > 100)) return;
      double& known = gpu->gpu.view.*field.at;
      if (std::isnan(known)) known = value;
    }
  }

  /// What is no plain number of a GPU.
  void take_more(const PrometheusSample& sample) {
    const std::string_view name = without_total(sample.name);
    if (name == "nvidia_smi_compute_apps" || starts_with(name, "process_gpu_") ||
        exporter_ == "nvitop-exporter")
      processes_told_ = true;
    if (starts_with(name, "nvidia_smi_compute_app_") || starts_with(name, "process_gpu_"))
      return take_process(sample, name);
    if (name == "DCGM_FI_DEV_FB_FREE" || name == "nvidia_smi_mig_info" || name == "nvidia_smi_xid_errors" ||
        contains_any(name, {"CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS", "XID_ERROR",
                            "clocks_event_reasons_active", "clocks_throttle_reasons_active"}))
      take_event(sample, name);
  }

  void take_event(const PrometheusSample& sample, std::string_view name) {
    if (name == "nvidia_smi_mig_info") {
      if (const auto gpu = gpus_.find(key_of(sample)); gpu != gpus_.end()) gpu->second.gpu.view.mig = true;
      return;
    }
    const auto at = gpus_.find(key_of(sample));
    if (!is_told(sample) || at == gpus_.end() || find(sample) == nullptr) return;
    ExportedGpu& gpu = at->second.gpu;
    if (name == "DCGM_FI_DEV_FB_FREE") {
      at->second.free_bytes = sample.value * kMiB;
    } else if (name == "nvidia_smi_xid_errors") {
      if (const auto xid = whole_number(label(sample, {"xid"})); xid && *xid > 0)
        gpu.xids[*xid] = sample.value;
    } else if (contains(name, "XID_ERROR")) {
      if (sample.value >= 1 && sample.value < 1000) gpu.xids[static_cast<std::int64_t>(sample.value)] = 1;
    } else {
      gpu.view.slow_reasons = static_cast<std::uint64_t>(sample.value);  // NVML's own bits in all of them
    }
  }

  void take_process(const PrometheusSample& sample, std::string_view name) {
    const auto pid = whole_number(label(sample, {"pid"}));
    if (!pid || *pid <= 0 || find(sample) == nullptr || processes_.size() >= kMostProcesses) return;
    processes_told_ = true;
    DeviceProcess& process = processes_[{*pid, key_of(sample)}];
    process.pid = *pid;
    if (!is_told(sample)) return;
    if (name == "nvidia_smi_compute_app_used_memory_bytes") process.bytes = sample.value;
    if (name == "process_gpu_memory_MiB") process.bytes = sample.value * kMiB;
    if (name == "process_gpu_sm_utilization_Percentage" && sample.value <= 100)
      process.busy_pct = sample.value;
  }

  GpuPage finish() {
    GpuPage page;
    page.exporter = exporter_;
    std::int64_t next = 0;
    for (const std::string& key : order_) {  // one without an index: in the order of the page
      DeviceView& view = gpus_[key].gpu.view;
      if (view.index < 0) view.index = next;
      next = std::max(next, view.index + 1);
    }
    for (auto& [key, process] : processes_) {
      process.device = gpus_[key.second].gpu.view.index;
      if (!page.processes) page.processes.emplace();
      page.processes->push_back(process);
    }
    if (processes_told_ && !page.processes) page.processes.emplace();
    for (auto& [key, known] : gpus_) {
      DeviceView& view = known.gpu.view;
      const double reserved = std::isnan(view.reserved_bytes) ? 0 : view.reserved_bytes;
      if (std::isnan(view.total_bytes)) view.total_bytes = view.used_bytes + known.free_bytes + reserved;
      if (exporter_ == "dcgm-exporter") view.used_bytes += reserved;  // as NVML and nvidia-smi count here
      if (std::isnan(view.limit_w)) view.limit_w = usual_power_limit(view.name);
      page.gpus.push_back(std::move(known.gpu));
    }
    std::stable_sort(page.gpus.begin(), page.gpus.end(),
                     [](const auto& a, const auto& b) { return a.view.index < b.view.index; });
    if (page.gpus.empty()) page.exporter.clear();
    return page;
  }

  std::map<std::string, Known> gpus_;
  std::vector<std::string> order_;
  std::map<ProcessKey, DeviceProcess> processes_;
  std::string exporter_;
  bool processes_told_ = false;
};

}  // namespace

GpuPage read_gpu_page(std::string_view text) {
  return PageReading().page(text);
}

double usual_power_limit(const std::string& name) {
  struct Limit {
    const char* part;
    double watts;
  };
  // Data sheets; a longer name stands before the one that it holds.
  constexpr Limit kLimits[] = {{"H200 NVL", 600},     {"H200", 700},           {"H100 NVL", 400},
                               {"H100 PCIe", 350},    {"H100", 700},           {"B200", 1000},
                               {"A100-SXM4", 400},    {"A100-PCIE-40GB", 250}, {"A100 80GB PCIe", 300},
                               {"L40S", 350},         {"Max-Q", 300},          {"RTX PRO 6000", 600},
                               {"RTX 6000 Ada", 300}, {"RTX 5090", 575},       {"RTX 4090", 450}};
  for (const Limit& limit : kLimits)
    if (contains(name, limit.part)) return limit.watts;
  return kNotKnown;
}

}  // namespace eaglet::monitor

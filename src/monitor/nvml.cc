#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "monitor/devices.h"
#include "monitor/nvml_gpm.h"

namespace eaglet::monitor {
namespace {

// The parts of NVML's interface that are used, as its ABI has them; no header is needed to build.
using Device = void*;
using EventSet = void*;
constexpr int kSuccess = 0, kLost = 15, kResetRequired = 16;
constexpr unsigned kTemperatureCore = 0, kThresholdSlowdown = 1, kClockSm = 1;
constexpr unsigned kPcieIn = 1;  // received by the GPU; 0: sent
constexpr unsigned kEccVolatile = 0, kErrorUncorrected = 1;
constexpr std::uint64_t kEventXid = 0x8, kNotAvailable = ~std::uint64_t{0};

struct Utilization {
  unsigned gpu = 0, memory = 0;
};
struct Memory {
  std::uint64_t total = 0, free = 0, used = 0;
};
struct MemoryV2 {
  unsigned version = 0;  // size of this struct | 2 << 24
  std::uint64_t total = 0, reserved = 0, free = 0, used = 0;
};
struct ProcessV1 {  // 16 bytes: what the oldest call fills
  unsigned pid = 0;
  std::uint64_t bytes = 0;
};
struct ProcessV3 {  // 24 bytes
  unsigned pid = 0;
  std::uint64_t bytes = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
struct ProcessWork {
  unsigned pid = 0;
  std::uint64_t time_us = 0;
  unsigned sm = 0, memory = 0, encoder = 0, decoder = 0;  // percent
};
struct EventData {
  Device device = nullptr;
  std::uint64_t type = 0, data = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};

class Nvml : public DeviceSource {
 public:
  explicit Nvml(void* library) : library_(library), gpm_(std::make_unique<NvmlGpm>(library)) {}
  ~Nvml() override {
    gpm_.reset();
    if (auto* end = find<int()>({"nvmlShutdown"})) end();
    ::dlclose(library_);
  }

  Status begin() {
    auto* init = find<int()>({"nvmlInit_v2", "nvmlInit"});
    auto* count = find<int(unsigned*)>({"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    auto* handle =
        find<int(unsigned, Device*)>({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    if (init == nullptr || count == nullptr || handle == nullptr)
      return unavailable("it lacks its first calls");
    if (const int code = init(); code != kSuccess)
      return unavailable("it answers with code " + std::to_string(code));
    unsigned devices = 0;
    if (count(&devices) != kSuccess) return unavailable("it counts no devices");
    for (unsigned i = 0; i < devices && i < 256; ++i) {
      Device device = nullptr;
      const int code = handle(i, &device);
      devices_.push_back(code == kSuccess ? device : nullptr);
    }
    fixed_.resize(devices_.size());
    work_seen_us_.resize(devices_.size());
    for (std::size_t i = 0; i < devices_.size(); ++i) read_fixed(i);
    begin_events();
    return {};
  }

  void read(RunView* view) override {
    std::vector<DeviceView> devices;
    std::vector<DeviceProcess> processes;
    collect_events();
    turn_ = (turn_ + 1) % (2 * std::max<std::size_t>(1, devices_.size()));
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      DeviceView device = fixed_[i];
      if (devices_[i] == nullptr)
        device.lost = true;
      else
        read_device(devices_[i], &device);
      if (devices_[i] != nullptr && !device.lost) read_counters(i, &device);
      if (devices_[i] != nullptr) {
        const std::size_t before = processes.size();
        read_processes(devices_[i], device.index, &processes);
        read_work(i, before, &processes);
      }
      devices.push_back(std::move(device));
    }
    view->devices = std::move(devices);
    view->device_processes = std::move(processes);
  }

  std::string name() const override { return "NVML"; }

 private:
  static Status unavailable(const std::string& why) {
    return Status(StatusCode::kUnavailable, "NVIDIA's management library does not work here: " + why);
  }

  /// The first of these symbols that there is.
  template <class Function>
  Function* find(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (void* symbol = ::dlsym(library_, name)) return reinterpret_cast<Function*>(symbol);
    return nullptr;
  }
  /// Calls a getter of one unsigned number; NaN when it is missing, refused or not supported.
  double number(const char* name, Device device) const {
    auto* get = find<int(Device, unsigned*)>({name});
    unsigned value = 0;
    return get != nullptr && get(device, &value) == kSuccess ? value : kNotKnown;
  }
  double number(const char* name, Device device, unsigned kind) const {
    auto* get = find<int(Device, unsigned, unsigned*)>({name});
    unsigned value = 0;
    return get != nullptr && get(device, kind, &value) == kSuccess ? value : kNotKnown;
  }
  std::string text(const char* name, Device device) const {
    auto* get = find<int(Device, char*, unsigned)>({name});
    char buffer[128] = {};
    return get != nullptr && get(device, buffer, sizeof buffer - 1) == kSuccess ? std::string(buffer)
                                                                                : std::string();
  }

  void read_fixed(std::size_t i) {
    DeviceView& device = fixed_[i];
    device.index = static_cast<std::int64_t>(i);
    if (devices_[i] == nullptr) return;
    device.name = text("nvmlDeviceGetName", devices_[i]);
    device.id = text("nvmlDeviceGetUUID", devices_[i]);
    device.limit_w = number("nvmlDeviceGetEnforcedPowerLimit", devices_[i]) / 1000;
    device.slowdown_celsius = number("nvmlDeviceGetTemperatureThreshold", devices_[i], kThresholdSlowdown);
    device.max_clock_mhz = number("nvmlDeviceGetMaxClockInfo", devices_[i], kClockSm);
    device.max_link_width = number("nvmlDeviceGetMaxPcieLinkWidth", devices_[i]);
    device.max_link_generation = number("nvmlDeviceGetMaxPcieLinkGeneration", devices_[i]);
    auto* mig = find<int(Device, unsigned*, unsigned*)>({"nvmlDeviceGetMigMode"});
    unsigned current = 0, pending = 0;
    device.mig = mig != nullptr && mig(devices_[i], &current, &pending) == kSuccess && current == 1;
  }

  void read_device(Device device, DeviceView* view) const {
    Utilization busy;
    if (auto* get = find<int(Device, Utilization*)>({"nvmlDeviceGetUtilizationRates"})) {
      const int code = get(device, &busy);
      if (code == kSuccess) view->busy_pct = busy.gpu;
      view->lost = code == kLost || code == kResetRequired;
    }
    view->power_w = number("nvmlDeviceGetPowerUsage", device) / 1000;
    if (auto* energy = find<int(Device, std::uint64_t*)>({"nvmlDeviceGetTotalEnergyConsumption"})) {
      std::uint64_t millijoules = 0;
      if (energy(device, &millijoules) == kSuccess) view->energy_j = static_cast<double>(millijoules) / 1000;
    }
    read_memory(device, view);
    view->celsius = number("nvmlDeviceGetTemperature", device, kTemperatureCore);
    view->clock_mhz = number("nvmlDeviceGetClockInfo", device, kClockSm);
    view->link_width = number("nvmlDeviceGetCurrPcieLinkWidth", device);
    view->link_generation = number("nvmlDeviceGetCurrPcieLinkGeneration", device);
    auto* reasons = find<int(Device, std::uint64_t*)>(
        {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    std::uint64_t bits = 0;
    if (reasons != nullptr && reasons(device, &bits) == kSuccess) view->slow_reasons = bits;
    auto* ecc = find<int(Device, unsigned, unsigned, std::uint64_t*)>({"nvmlDeviceGetTotalEccErrors"});
    std::uint64_t errors = 0;
    if (ecc != nullptr && ecc(device, kErrorUncorrected, kEccVolatile, &errors) == kSuccess)
      view->ecc_uncorrected = static_cast<double>(errors);
    auto* remap =
        find<int(Device, unsigned*, unsigned*, unsigned*, unsigned*)>({"nvmlDeviceGetRemappedRows"});
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (remap != nullptr && remap(device, &corrected, &uncorrected, &pending, &failed) == kSuccess)
      view->remap_pending = pending + failed;
    else  // boards before Ampere
      view->remap_pending = number("nvmlDeviceGetRetiredPagesPendingStatus", device);
  }

  /// Tensor units and the link. Boards without counters measure the link for 20 ms when they are asked, one
  /// way at a time: one such question a look, by turns.
  void read_counters(std::size_t i, DeviceView* view) {
    const GpmReading reading = gpm_->read(devices_[i], i);
    view->tensor_pct = reading.tensor_pct;
    view->pcie_in = reading.pcie_in;
    view->pcie_out = reading.pcie_out;
    if (!std::isnan(reading.pcie_in) || i != turn_ / 2) return;
    const unsigned way = turn_ % 2;
    (way == kPcieIn ? view->pcie_in : view->pcie_out) =
        1024 * number("nvmlDeviceGetPcieThroughput", devices_[i], way);
  }

  void read_memory(Device device, DeviceView* view) const {
    if (auto* get = find<int(Device, MemoryV2*)>({"nvmlDeviceGetMemoryInfo_v2"})) {
      MemoryV2 memory;
      memory.version = static_cast<unsigned>(sizeof memory) | 2u << 24;
      if (get(device, &memory) == kSuccess) {
        view->total_bytes = static_cast<double>(memory.total);
        view->used_bytes = static_cast<double>(memory.used + memory.reserved);
        view->reserved_bytes = static_cast<double>(memory.reserved);
        return;
      }
    }
    Memory memory;
    auto* get = find<int(Device, Memory*)>({"nvmlDeviceGetMemoryInfo"});
    if (get == nullptr || get(device, &memory) != kSuccess) return;
    view->total_bytes = static_cast<double>(memory.total);
    view->used_bytes = static_cast<double>(memory.used);
  }

  void read_processes(Device device, std::int64_t index, std::vector<DeviceProcess>* all) const {
    const auto add = [&](unsigned pid, std::uint64_t bytes) {
      all->push_back({pid, index, bytes == kNotAvailable ? kNotKnown : static_cast<double>(bytes)});
    };
    if (auto* get = find<int(Device, unsigned*, ProcessV3*)>(
            {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"})) {
      std::vector<ProcessV3> found(256);
      unsigned count = static_cast<unsigned>(found.size());
      if (get(device, &count, found.data()) == kSuccess)
        for (unsigned i = 0; i < count && i < found.size(); ++i) add(found[i].pid, found[i].bytes);
      return;
    }
    auto* get = find<int(Device, unsigned*, ProcessV1*)>({"nvmlDeviceGetComputeRunningProcesses"});
    std::vector<ProcessV1> found(256);
    unsigned count = static_cast<unsigned>(found.size());
    if (get != nullptr && get(device, &count, found.data()) == kSuccess)
      for (unsigned i = 0; i < count && i < found.size(); ++i) add(found[i].pid, found[i].bytes);
  }

  /// Who of the processes listed from `first` on keeps the device busy. The driver tells what is new since
  /// the last look, or that there is nothing: then it is not known, the device's own figure says whether it
  /// idles.
  void read_work(std::size_t i, std::size_t first, std::vector<DeviceProcess>* all) {
    auto* get =
        find<int(Device, ProcessWork*, unsigned*, std::uint64_t)>({"nvmlDeviceGetProcessUtilization"});
    if (get == nullptr || all->size() == first) return;
    std::vector<ProcessWork> found(1024);
    unsigned count = static_cast<unsigned>(found.size());
    if (get(devices_[i], found.data(), &count, work_seen_us_[i]) != kSuccess || count == 0) return;
    found.resize(std::min<std::size_t>(count, found.size()));
    for (std::size_t p = first; p < all->size(); ++p) {
      std::uint64_t newest = 0;
      (*all)[p].busy_pct = 0;
      for (const ProcessWork& work : found) {
        if (work.pid != static_cast<std::uint64_t>((*all)[p].pid) || work.time_us < newest || work.sm > 100)
          continue;  // figures of thousands of percent were seen
        newest = work.time_us;
        (*all)[p].busy_pct = work.sm;
      }
    }
    for (const ProcessWork& work : found) work_seen_us_[i] = std::max(work_seen_us_[i], work.time_us);
  }

  void begin_events() {
    auto* create = find<int(EventSet*)>({"nvmlEventSetCreate"});
    auto* add = find<int(Device, std::uint64_t, EventSet)>({"nvmlDeviceRegisterEvents"});
    if (create == nullptr || add == nullptr || create(&events_) != kSuccess) return;
    for (Device device : devices_)
      if (device != nullptr) (void)add(device, kEventXid, events_);
  }

  /// Fatal events since the last look stay with their device.
  void collect_events() {
    auto* wait = find<int(EventSet, EventData*, unsigned)>({"nvmlEventSetWait_v2", "nvmlEventSetWait"});
    if (wait == nullptr || events_ == nullptr) return;
    EventData data;
    for (int most = 0; most < 16 && wait(events_, &data, 0) == kSuccess; ++most)
      for (std::size_t i = 0; i < devices_.size(); ++i)
        if (devices_[i] == data.device && (data.type & kEventXid) != 0 && fixed_[i].xids.size() < 32)
          fixed_[i].xids.push_back(static_cast<std::int64_t>(data.data));
  }

  void* library_;
  std::unique_ptr<NvmlGpm> gpm_;
  EventSet events_ = nullptr;
  std::vector<Device> devices_;
  std::vector<DeviceView> fixed_;  // what cannot change
  std::vector<std::uint64_t> work_seen_us_;
  std::size_t turn_ = 0;  // whose link is asked for: twice the device, and which way
};

}  // namespace

Result<std::unique_ptr<DeviceSource>> open_nvml(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(StatusCode::kUnavailable, "no NVIDIA management library here", library);
  auto nvml = std::make_unique<Nvml>(handle);
  EAGLET_RETURN_IF_ERROR(nvml->begin());
  return std::unique_ptr<DeviceSource>(std::move(nvml));
}

}  // namespace eaglet::monitor

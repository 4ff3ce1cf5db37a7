#include "monitor/nvml_gpm.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace eaglet::monitor {
namespace {

// As the library's ABI has them.
constexpr unsigned kVersion = 1;
constexpr unsigned kMetrics[] = {5, 20,
                                 21};  // any tensor unit, percent; PCIe out of the GPU and into it, MiB/s
constexpr std::size_t kGpmMetrics =
    512;  // more than any version's array holds: it reads as many as we ask for

struct Support {
  unsigned version = kVersion, supported = 0;
};
struct Metric {
  unsigned id = 0;
  int code = 0;
  double value = 0;
  const char *short_name = nullptr, *long_name = nullptr, *unit = nullptr;
};
struct Comparison {
  unsigned version = kVersion, count = std::size(kMetrics);
  void *first = nullptr, *second = nullptr;
  Metric metrics[kGpmMetrics];
};

}  // namespace

NvmlGpm::NvmlGpm(void* library) {
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(::dlsym(library, name));
  };
  find("nvmlGpmQueryDeviceSupport", &supports_);
  find("nvmlGpmSampleAlloc", &allocate_);
  find("nvmlGpmSampleFree", &release_);
  find("nvmlGpmSampleGet", &take_);
  find("nvmlGpmMetricsGet", &compare_);
}

NvmlGpm::~NvmlGpm() {
  for (const Counters& counters : devices_)
    for (void* sample : {counters.before, counters.now})
      if (sample != nullptr && release_ != nullptr) (void)release_(sample);
}

bool NvmlGpm::prepare(void* device, Counters* counters) {
  if (supports_ == nullptr || allocate_ == nullptr || take_ == nullptr || compare_ == nullptr) return false;
  if (counters->refused) return false;
  if (counters->before != nullptr && counters->now != nullptr) return true;
  Support support;
  const bool works = supports_(device, &support) == 0 && support.supported != 0 &&
                     allocate_(&counters->before) == 0 && allocate_(&counters->now) == 0;
  counters->refused = !works;
  return works;
}

GpmReading NvmlGpm::read(void* device, std::size_t slot) {
  if (slot >= devices_.size()) devices_.resize(slot + 1);
  Counters& counters = devices_[slot];
  GpmReading reading;
  if (!prepare(device, &counters)) return reading;
  if (take_(device, counters.now) != 0) {
    counters.any = false;
    return reading;
  }
  if (counters.any) {
    const auto asked = std::make_unique<Comparison>();  // 20 kB
    Comparison& comparison = *asked;
    comparison.first = counters.before;
    comparison.second = counters.now;
    for (std::size_t i = 0; i < std::size(kMetrics); ++i) comparison.metrics[i].id = kMetrics[i];
    if (compare_(&comparison) == 0) {
      const auto value = [&](std::size_t i, double most) {
        const Metric& metric = comparison.metrics[i];
        return metric.code == 0 && metric.value >= 0 ? std::min(metric.value, most) : kNotKnown;
      };
      constexpr double kMiB = 1024 * 1024, kNoLink = 1e6;  // MiB/s that no link carries
      reading.tensor_pct = value(0, 100);
      reading.pcie_out = value(1, kNoLink) * kMiB;
      reading.pcie_in = value(2, kNoLink) * kMiB;
    }
  }
  std::swap(counters.before, counters.now);
  counters.any = true;
  return reading;
}

}  // namespace eaglet::monitor

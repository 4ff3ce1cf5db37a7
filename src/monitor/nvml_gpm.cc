#include "monitor/nvml_tensor.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "monitor/view.h"

namespace eaglet::monitor {
namespace {

// As the library's ABI has them.
constexpr unsigned kVersion = 1, kAnyTensor = 5;
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
  unsigned version = kVersion, count = 1;
  void *first = nullptr, *second = nullptr;
  Metric metrics[kGpmMetrics];
};

}  // namespace

NvmlTensor::NvmlTensor(void* library) {
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(::dlsym(library, name));
  };
  find("nvmlGpmQueryDeviceSupport", &supports_);
  find("nvmlGpmSampleAlloc", &allocate_);
  find("nvmlGpmSampleFree", &release_);
  find("nvmlGpmSampleGet", &take_);
  find("nvmlGpmMetricsGet", &compare_);
}

NvmlTensor::~NvmlTensor() {
  for (const Counters& counters : devices_)
    for (void* sample : {counters.before, counters.now})
      if (sample != nullptr && release_ != nullptr) (void)release_(sample);
}

bool NvmlTensor::prepare(void* device, Counters* counters) {
  if (supports_ == nullptr || allocate_ == nullptr || take_ == nullptr || compare_ == nullptr) return false;
  if (counters->refused) return false;
  if (counters->before != nullptr && counters->now != nullptr) return true;
  Support support;
  const bool works = supports_(device, &support) == 0 && support.supported != 0 &&
                     allocate_(&counters->before) == 0 && allocate_(&counters->now) == 0;
  counters->refused = !works;
  return works;
}

double NvmlTensor::active_pct(void* device, std::size_t slot) {
  if (slot >= devices_.size()) devices_.resize(slot + 1);
  Counters& counters = devices_[slot];
  if (!prepare(device, &counters)) return kNotKnown;
  if (take_(device, counters.now) != 0) {
    counters.any = false;
    return kNotKnown;
  }
  double active = kNotKnown;
  if (counters.any) {
    const auto asked = std::make_unique<Comparison>();  // 20 kB
    Comparison& comparison = *asked;
    comparison.first = counters.before;
    comparison.second = counters.now;
    comparison.metrics[0].id = kAnyTensor;
    const bool told = compare_(&comparison) == 0 && comparison.metrics[0].code == 0;
    if (told) active = std::clamp(comparison.metrics[0].value, 0.0, 100.0);
  }
  std::swap(counters.before, counters.now);
  counters.any = true;
  return active;
}

}  // namespace eaglet::monitor

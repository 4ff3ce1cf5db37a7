#pragma once

#include <cstddef>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// What a GPU did between two looks; kNotKnown where it is not told.
struct GpmReading {
  double tensor_pct = kNotKnown;                     // of the time, its tensor units worked
  double pcie_in = kNotKnown, pcie_out = kNotKnown;  // bytes/s, from the machine and to it
};

/// NVML's GPM counters (Hopper and newer; some systems ask for rights): they tell a kernel that computes from
/// one that waits, however busy both look, and what crosses the link without waiting for it.
class NvmlGpm {
 public:
  /// `library`: what dlopen gave for NVML; must outlive this.
  explicit NvmlGpm(void* library);
  ~NvmlGpm();
  NvmlGpm(const NvmlGpm&) = delete;
  NvmlGpm& operator=(const NvmlGpm&) = delete;

  /// Since the call before this one for the same device, which is `slot`; nothing is known the first time.
  GpmReading read(void* device, std::size_t slot);

 private:
  struct Counters {
    void *before = nullptr, *now = nullptr;  // NVML's sample buffers
    bool any = false, refused = false;
  };
  bool prepare(void* device, Counters* counters);
  int (*supports_)(void*, void*) = nullptr;
  int (*allocate_)(void**) = nullptr;
  int (*release_)(void*) = nullptr;
  int (*take_)(void*, void*) = nullptr;
  int (*compare_)(void*) = nullptr;
  std::vector<Counters> devices_;
};

}  // namespace eaglet::monitor

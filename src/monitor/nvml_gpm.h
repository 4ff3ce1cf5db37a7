#pragma once

#include <cstddef>
#include <vector>

namespace eaglet::monitor {

/// How much of the time a GPU's tensor units work, by NVML's GPM counters (Hopper and newer; some systems ask
/// for rights): what tells a kernel that computes from one that waits, however busy both look.
class NvmlTensor {
 public:
  /// `library`: what dlopen gave for NVML; must outlive this.
  explicit NvmlTensor(void* library);
  ~NvmlTensor();
  NvmlTensor(const NvmlTensor&) = delete;
  NvmlTensor& operator=(const NvmlTensor&) = delete;

  /// Percent since the call before this one for the same device, which is `slot`; kNotKnown the first time
  /// and where it cannot be told.
  double active_pct(void* device, std::size_t slot);

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

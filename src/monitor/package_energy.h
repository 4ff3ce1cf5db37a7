#pragma once

#include <string>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// Energy of the processor packages since the first reading, from the kernel's RAPL counters: the power of a
/// run without a GPU. Readable by root only on many kernels; kNotKnown then.
class PackageEnergy {
 public:
  explicit PackageEnergy(const std::string& root = "/sys/class/powercap");
  /// Joules over all packages. Read at least each minute: a counter wraps after some (65 kJ at 200 W: 5 min).
  double joules();

 private:
  struct Package {
    std::string path;
    double last_microjoules = kNotKnown, range_microjoules = 0;
  };
  std::vector<Package> packages_;
  double joules_ = 0;
};

}  // namespace eaglet::monitor

#include "monitor/package_energy.h"

#include <cmath>

#include "base/files.h"
#include "monitor/proc_reader.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {

PackageEnergy::PackageEnergy(const std::string& root) {
  const auto names = list_directory(root);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    // "intel-rapl:0" is a package, "intel-rapl:0:1" a part of it that it already counts (AMD uses the same
    // names).
    if (!starts_with(name, "intel-rapl:") || name.find(':') != name.rfind(':')) continue;
    Package package;
    package.path = root + "/" + name + "/energy_uj";
    package.range_microjoules =
        number(trim(read_small(root + "/" + name + "/max_energy_range_uj"))).value_or(0);
    packages_.push_back(package);
  }
}

double PackageEnergy::joules() {
  bool any = false;
  for (Package& package : packages_) {
    const std::string text = read_small(package.path);
    const auto now = number(trim(text));
    if (!now) continue;
    any = true;
    double gained = std::isnan(package.last_microjoules) ? 0 : *now - package.last_microjoules;
    if (gained < 0) gained += package.range_microjoules;
    package.last_microjoules = *now;
    if (gained > 0) joules_ += gained / 1e6;
  }
  return any ? joules_ : kNotKnown;
}

}  // namespace eaglet::monitor

#include "apps/setting.h"

#include <algorithm>

namespace eaglet::apps {
namespace {

std::string with_dashes(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

struct AddFlag {
  CLI::App& app;
  const Setting& setting;
  void operator()(bool* value) const {
    const std::string name = with_dashes(setting.key);
    app.add_flag("--" + name + ",!--no-" + name, *value, setting.help);
  }
  template <class T>
  void operator()(std::vector<T>* value) const {
    app.add_option("--" + with_dashes(setting.key), *value, setting.help)->delimiter(',');
  }
  template <class T>
  void operator()(T* value) const {
    app.add_option("--" + with_dashes(setting.key), *value, setting.help);
  }
};

}  // namespace

void add_flags(CLI::App& app, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) std::visit(AddFlag{app, setting}, setting.target);
}

}  // namespace eaglet::apps

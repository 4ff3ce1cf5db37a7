#include "apps/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

// The value as a flag takes it.
struct FlagText {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const bool*) const { return {}; }
  template <class T>
  std::string operator()(const std::vector<T>* values) const {
    return fmt::format("{}", fmt::join(*values, ","));
  }
  template <class T>
  std::string operator()(const T* value) const {
    return fmt::format("{}", *value);  // of a double the shortest text that is it again
  }
};

}  // namespace

std::vector<std::string> flag_words(const std::vector<Setting>& settings) {
  std::vector<std::string> words;
  for (const Setting& setting : settings) {
    const std::string name = with_dashes(setting.key), text = std::visit(FlagText(), setting.target);
    if (bool* const* value = std::get_if<bool*>(&setting.target))
      words.push_back((**value ? "--" : "--no-") + name);
    else if (!text.empty())
      words.push_back("--" + name + "=" + text);
  }
  return words;
}

void add_flags(CLI::App& app, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) std::visit(AddFlag{app, setting}, setting.target);
}

}  // namespace eaglet::apps

#include "apps/watch_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "apps/terminal.h"
#include "base/files.h"

namespace eaglet::apps {
namespace {

using monitor::Level;
using monitor::Thresholds;

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// Notes every threshold that differs between two states.
void note_sources(const Thresholds& before, const Thresholds& after, const std::string& source,
                  std::map<std::string, std::string>* sources) {
  for (const monitor::ThresholdEntry& entry : monitor::threshold_entries())
    if (before.*entry.at != after.*entry.at) (*sources)[entry.name] = source;
}

}  // namespace

CLI::Option* add_watch_options(CLI::App& app, WatchOptions& options) {
  CLI::Option* gpus =
      app.add_option("--gpu-metrics", options.gpu_metrics,
                     "read GPUs from an exporter for Prometheus there: dcgm, nvidia_gpu or nvitop exporter")
          ->type_name("URL");
  app.add_option("--settings", options.settings_file, "a file of thresholds, one name = value a line");
  app.add_option("--set", options.set, "one threshold: NAME=VALUE; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  app.add_flag("--exit-zero", options.exit_zero, "exit with 0 whatever the verdict");
  app.add_option("--fail-on", options.fail_on, "the least that is no 0: warn, crit")
      ->check(CLI::IsMember({"warn", "crit"}).description(""))
      ->type_name("LEVEL");
  app.add_flag("--print-config", options.print_config, "print every threshold and where it comes from");
  return gpus;
}

Result<Thresholds> read_watch_thresholds(const WatchOptions& options, std::string* sources) {
  Thresholds thresholds;
  std::map<std::string, std::string> from;
  const auto read = [&](const std::string& path, const std::string& what) -> Status {
    const Thresholds before = thresholds;
    EAGLET_RETURN_IF_ERROR(monitor::read_thresholds(path, &thresholds));
    note_sources(before, thresholds, what + " " + path, &from);
    return {};
  };
  std::string home = from_environment("XDG_CONFIG_HOME");
  if (home.empty() && !from_environment("HOME").empty()) home = from_environment("HOME") + "/.config";
  if (const std::string path = home + "/eaglet/watch.conf"; !home.empty() && path_exists(path))
    EAGLET_RETURN_IF_ERROR(read(path, "user file"));
  if (const std::string path = from_environment("EAGLET_WATCH_CONFIG"); !path.empty())
    EAGLET_RETURN_IF_ERROR(read(path, "EAGLET_WATCH_CONFIG"));
  if (!options.settings_file.empty()) EAGLET_RETURN_IF_ERROR(read(options.settings_file, "--settings"));
  for (const std::string& assignment : options.set) {
    const Thresholds before = thresholds;
    EAGLET_RETURN_IF_ERROR(monitor::set_threshold(assignment, &thresholds));
    note_sources(before, thresholds, "--set", &from);
  }
  if (sources != nullptr)
    for (const monitor::ThresholdEntry& entry : monitor::threshold_entries())
      *sources += fmt::format("{} = {}  # {}\n", entry.name, thresholds.*entry.at,
                              from.count(entry.name) != 0 ? from[entry.name] : std::string("default"));
  return thresholds;
}

int watch_exit_code(int code, const WatchOptions& options) {
  if (options.exit_zero) return 0;
  return options.fail_on == "crit" && code == 1 ? 0 : code;
}

monitor::Paint painter(bool color) {
  return [color](const std::string& text, Level level) {
    const Tone tones[] = {Tone::kGood, Tone::kWarn, Tone::kBad, Tone::kDim};
    return toned(text, tones[static_cast<int>(level)], color);
  };
}

}  // namespace eaglet::apps

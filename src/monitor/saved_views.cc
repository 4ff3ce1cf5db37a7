#include "monitor/saved_views.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/files.h"
#include "monitor/log_reader.h"
#include "monitor/own_devices.h"
#include "monitor/saved_tables.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr const char* kViewFiles[] = {"clock.txt", "ps.txt",    "gpu.csv",           "compute_apps.csv",
                                      "files.txt", "train.log", "train_config.json", "status.json"};
constexpr std::uint64_t kWholeLog = 32u << 20, kHead = 256u << 10, kTail = 4u << 20, kBlock = 64u << 10;

bool is_view(const std::string& directory) {
  for (const char* name : kViewFiles)
    if (path_exists(directory + "/" + name)) return true;
  return false;
}

Status add_views(const std::string& directory, std::vector<std::string>* views) {
  if (!is_directory(directory))
    return Status(StatusCode::kNotFound, "there is no such folder of saved views", directory,
                  "give folders that hold ps.txt, gpu.csv, train.log and so on, oldest first");
  if (is_view(directory)) {
    views->push_back(directory);
    return {};
  }
  EAGLET_ASSIGN_OR_RETURN(const auto names, list_directory(directory));
  const std::size_t before = views->size();
  for (const std::string& name : names)
    if (is_view(directory + "/" + name)) views->push_back(directory + "/" + name);
  if (views->size() > before) return {};
  return Status(
      StatusCode::kDataLoss, "the folder holds none of the files a saved view is made of", directory,
      "docs/watch.md lists them: clock.txt, ps.txt, gpu.csv, compute_apps.csv, files.txt, train.log");
}

std::string text_of(const std::string& path) {
  const auto text = read_file(path);
  return text.ok() ? *text : std::string();
}

LogMoment moment_of(const LogFacts& log, const RunView& view) {
  LogMoment moment;
  moment.known = true;
  moment.bytes = static_cast<double>(log.bytes);
  moment.records = log.records + log.bars;
  moment.last_step = log.last_step;
  if (view.files)
    for (const FileView& file : *view.files)
      if (file.path.size() >= 9 && file.path.substr(file.path.size() - 9) == "train.log")
        moment.mtime = file.mtime;
  return moment;
}

Status read_view(const std::string& directory, RunSeries* series) {
  RunView view;
  const auto has = [&](const char* name) { return path_exists(directory + "/" + name); };
  const auto text = [&](const char* name) { return text_of(directory + "/" + name); };
  if (has("clock.txt")) {
    const std::string clock(trim(text("clock.txt")));
    const auto iso = iso_time(clock);
    view.wall = iso ? *iso : number(clock).value_or(kNotKnown);
  }
  if (has("ps.txt")) view.processes = read_ps(text("ps.txt"));
  if (has("gpu.csv")) view.devices = read_gpu_csv(text("gpu.csv"));
  if (has("compute_apps.csv"))
    view.device_processes =
        read_compute_apps(text("compute_apps.csv"), view.devices.value_or(std::vector<DeviceView>()));
  if (has("files.txt")) view.files = read_file_list(text("files.txt"));
  if (has("status.json"))
    if (const auto status = read_status(directory + "/status.json"); status.ok()) view.status = *status;
  if (has("train.log")) {
    EAGLET_ASSIGN_OR_RETURN(LogRead log, read_log_file(directory + "/train.log"));
    view.log = moment_of(log.facts, view);
    series->log = std::move(log.facts);
    series->log_read_note = log.note;
    series->log_known = true;
    series->log_path = directory + "/train.log";
  }
  if (has("train_config.json")) {
    if (auto config = read_json_file(directory + "/train_config.json"); config.ok())
      series->config = std::move(*config);
    series->config_path = directory + "/train_config.json";
  }
  series->views.push_back(std::move(view));
  return {};
}

/// "seven/a/" and "seven/a/t0" are both the run "a".
std::string run_name(const std::vector<std::string>& given, const std::vector<std::string>& views) {
  std::filesystem::path path(given.front());
  if (!path.has_filename()) path = path.parent_path();
  if (views.size() >= given.size() && path == std::filesystem::path(views.front()) && given.size() > 1)
    path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." ? "saved views" : name;
}

}  // namespace

Result<RunSeries> read_saved_views(const std::vector<std::string>& directories) {
  std::vector<std::string> views;
  for (const std::string& directory : directories) EAGLET_RETURN_IF_ERROR(add_views(directory, &views));
  RunSeries series;
  series.name = run_name(directories, views);
  for (const std::string& view : views) EAGLET_RETURN_IF_ERROR(read_view(view, &series));
  const bool clocks = std::all_of(series.views.begin(), series.views.end(),
                                  [](const RunView& view) { return !std::isnan(view.wall); });
  if (clocks)
    std::stable_sort(series.views.begin(), series.views.end(),
                     [](const RunView& a, const RunView& b) { return a.wall < b.wall; });
  keep_own_devices(&series);
  return series;
}

Result<LogRead> read_log_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_status("read", path, errno);
  struct stat info = {};
  const std::uint64_t bytes =
      ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
  LogRead read;
  LogReader reader;
  std::string block(kBlock, '\0');
  const auto feed = [&](std::uint64_t from, std::uint64_t until) {
    while (from < until) {
      const ssize_t got =
          ::pread(fd, block.data(), std::min<std::uint64_t>(kBlock, until - from), static_cast<off_t>(from));
      if (got <= 0) break;
      reader.feed(std::string_view(block).substr(0, static_cast<std::size_t>(got)));
      from += static_cast<std::uint64_t>(got);
    }
  };
  if (bytes <= kWholeLog) {
    feed(0, bytes);
  } else {
    feed(0, kHead);
    reader.feed("\n");  // the gap is no part of a line
    feed(bytes - kTail, bytes);
    read.note = fmt::format("log of {}: the first {} and the last {} were read",
                            human_bytes(static_cast<double>(bytes)), human_bytes(kHead), human_bytes(kTail));
  }
  ::close(fd);
  read.facts = reader.facts();
  read.facts.bytes = bytes;
  return read;
}

}  // namespace eaglet::monitor

#include "monitor/trackio_tail.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "base/files.h"
#include "formats/json.h"
#include "monitor/sqlite_file.h"
#include "monitor/text_scan.h"
#include "monitor/trackio_machine.h"

namespace eaglet::monitor {
namespace {

constexpr int kMostRows = 20000;  // at one look; the rest comes with the next one
constexpr int kMostAlerts = 20;
constexpr int kMostMachineRows = 500;  // at one look, the newest: a quarter hour of five ranks
constexpr std::size_t kMostAlertBytes = 300;

/// Time and size, of the file and of its writer's log.
std::string state_of(const std::string& path) {
  std::string state;
  for (const std::string& file : {path, path + "-wal"}) {
    struct stat info = {};
    if (::stat(file.c_str(), &info) == 0)
      state += fmt::format("{} {} {} {} ", file, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_size);
  }
  return state;
}

double changed_at(const std::string& path) {
  double newest = kNotKnown;
  for (const std::string& file : {path, path + "-wal"}) {
    struct stat info = {};
    if (::stat(file.c_str(), &info) == 0 && !(newest > static_cast<double>(info.st_mtim.tv_sec)))
      newest = static_cast<double>(info.st_mtim.tv_sec);
  }
  return newest;
}

/// Numbers of one record; what is not finite is kept as text there.
std::vector<std::pair<std::string, double>> scalars_of(std::string_view text) {
  std::vector<std::pair<std::string, double>> scalars;
  const auto json = parse_json(std::string(text));
  if (!json.ok() || !json->is_object()) return scalars;
  for (const auto& [name, value] : json->items()) {
    if (value.is_number()) scalars.emplace_back(name, value.get<double>());
    if (value == "NaN") scalars.emplace_back(name, kNotKnown);
    if (value == "Infinity") scalars.emplace_back(name, std::numeric_limits<double>::infinity());
    if (value == "-Infinity") scalars.emplace_back(name, -std::numeric_limits<double>::infinity());
  }
  return scalars;
}

/// Text of other people for one line of ours.
std::string one_line(std::string_view text) {
  std::string line(text.substr(0, kMostAlertBytes));
  for (char& c : line)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  line = without_controls(line);
  return std::string(trim(line));
}

std::string member_of(const std::map<std::string, std::string>& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() ? std::string() : it->second;
}

}  // namespace

void TrackioTail::begin(const std::string& run) {
  run_ = run;
  last_id_ = last_machine_id_ = "0";
  reader_ = LogReader();
  alerts_.clear();
  machine_.clear();
  config_.reset();
  newest_time_ = kNotKnown;
  any_ = false;
}

void TrackioTail::poll(const std::string& path) {
  const std::string state = state_of(path);
  if (state == read_) return;
  read_ = state;
  trouble_.clear();
  const auto file = SqliteFile::open(path);
  if (!file.ok()) {
    trouble_ = file.status().what();
    return;
  }
  std::string run;
  Status status = file->select("SELECT run_name FROM metrics ORDER BY id DESC LIMIT 1", {},
                               [&](const SqliteFile::Row& row) { run = std::string(row[0]); });
  if (run != run_) begin(run);
  if (status.ok()) status = read_metrics(*file);
  if (!status.ok()) trouble_ = status.what();
  read_machine(*file);
  read_alerts(*file);
  if (!config_) read_config(*file);
}

Status TrackioTail::read_metrics(const SqliteFile& file) {
  std::string last = last_id_;
  int rows = 0;
  Status status = file.select(
      "SELECT id, step, timestamp, metrics FROM metrics WHERE run_name = ?1 AND id > CAST(?2 AS INTEGER) "
      "ORDER BY id LIMIT CAST(?3 AS INTEGER)",
      {run_, last_id_, std::to_string(kMostRows)}, [&](const SqliteFile::Row& row) {
        last = std::string(row[0]);
        ++rows;
        const auto step = whole_number(row[1]);
        if (!step || *step < 0) return;
        const double time = iso_time(row[2]).value_or(kNotKnown);
        reader_.add_scalars(*step, time, scalars_of(row[3]));
        newest_time_ = time;
        any_ = true;
      });
  if (rows == kMostRows) read_.clear();  // go on with the next look
  last_id_ = last;
  return status;
}

/// Newest first, so that a long run costs no more than a short one. Most files have no such rows, older ones
/// not even the table.
void TrackioTail::read_machine(const SqliteFile& file) {
  std::vector<TrackedMoment> rows;
  std::string newest = last_machine_id_;
  (void)file.select(
      "SELECT id, timestamp, metrics FROM system_metrics WHERE run_name = ?1 AND id > CAST(?2 AS INTEGER) "
      "ORDER BY id DESC LIMIT CAST(?3 AS INTEGER)",
      {run_, last_machine_id_, std::to_string(kMostMachineRows)}, [&](const SqliteFile::Row& row) {
        if (rows.empty()) newest = std::string(row[0]);
        rows.push_back(tracked_moment(row[2], iso_time(row[1]).value_or(kNotKnown)));
      });
  last_machine_id_ = newest;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) add_tracked(std::move(*row), &machine_);
}

/// A file without that table is an older Trackio's: there are no alerts.
void TrackioTail::read_alerts(const SqliteFile& file) {
  alerts_.clear();
  (void)file.select(
      "SELECT level, title, text, step, timestamp FROM alerts WHERE run_name = ?1 ORDER BY id DESC LIMIT "
      "CAST(?2 AS INTEGER)",
      {run_, std::to_string(kMostAlerts)}, [&](const SqliteFile::Row& row) {
        TrackerAlert alert;
        alert.level = lower(row[0]);
        alert.title = one_line(row[1]);
        alert.text = one_line(row[2]);
        alert.step = whole_number(row[3]).value_or(-1);
        alert.time = iso_time(row[4]).value_or(kNotKnown);
        alerts_.insert(alerts_.begin(), std::move(alert));
      });
}

void TrackioTail::read_config(const SqliteFile& file) {
  (void)file.select("SELECT config FROM configs WHERE run_name = ?1 ORDER BY id DESC LIMIT 1", {run_},
                    [&](const SqliteFile::Row& row) {
                      auto config = parse_json(std::string(row[0]));
                      if (config.ok() && config->is_object()) config_ = std::move(*config);
                    });
}

std::string find_trackio_file(const std::vector<std::string>& open_files,
                              const std::map<std::string, std::string>& environment,
                              const std::string& output_dir, double run_began) {
  std::vector<std::string> places;
  if (const std::string named = member_of(environment, "TRACKIO_DIR"); !named.empty()) {
    places.push_back(named);
  } else if (const std::string hub = member_of(environment, "HF_HOME"); !hub.empty()) {
    places.push_back(hub + "/trackio");
  } else if (const std::string home = member_of(environment, "HOME"); !home.empty()) {
    places.push_back(home + "/.cache/huggingface/trackio");
  }
  if (!output_dir.empty()) places.push_back(output_dir + "/trackio");
  for (const std::string& path : open_files)
    for (const std::string& place : places)
      if (starts_with(path, place + "/") || contains(path, "trackio")) return path;
  std::string found;
  for (const std::string& place : places) {
    const auto names = list_directory(place);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      const std::string path = place + "/" + name;
      const bool older = !std::isnan(run_began) && !(changed_at(path) + 5 >= run_began);
      if (!name.ends_with(".db") || older || path == found) continue;
      if (!found.empty()) return {};  // two runs at once: which is ours is not to be told
      found = path;
    }
  }
  return found;
}

}  // namespace eaglet::monitor

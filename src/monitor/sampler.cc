#include "monitor/sampler.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/host_name.h"
#include "monitor/activity.h"
#include "monitor/data_look.h"
#include "monitor/disk_room.h"
#include "monitor/other_host.h"
#include "monitor/output_files.h"
#include "monitor/port_look.h"
#include "monitor/text_scan.h"
#include "monitor/written_config.h"

namespace eaglet::monitor {
namespace {

constexpr double kScanEverySeconds = 5, kInsideEverySeconds = 30, kConfigSettlesSeconds = 10;
constexpr double kDenseSeconds = 60, kSparseSeconds = 10, kKeptSeconds = 900;
constexpr const char* kRankNames[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"};

double mtime_of(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0
             ? static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec)
             : kNotKnown;
}

/// Of a process that a launcher of PyTorch or MPI made a rank of.
bool is_of_rank(const std::map<std::string, std::string>& environment) {
  return std::any_of(std::begin(kRankNames), std::end(kRankNames),
                     [&](const char* name) { return environment.count(name) != 0; });
}

/// "/dev/nvidia0"; "/dev/dxg" is how Windows hands its GPU to Linux. Not nvidiactl, which any look opens.
bool is_device_file(const std::string& path) {
  return path == "/dev/dxg" ||
         (starts_with(path, "/dev/nvidia") && path.find_first_of("0123456789") != std::string::npos);
}

}  // namespace

Sampler::Sampler(Target target, ProcReader reader, DeviceSource* devices)
    : target_(std::move(target)), reader_(std::move(reader)), devices_(devices) {
  series_.name = target_.name;
  series_.live = true;
  server_.set_address(target_.server);
  const std::string space = read_link(reader_.roots().proc + "/self/ns/pid");
  series_.in_container = !space.empty() && space != "pid:[4026531836]";  // the first namespace's fixed number
}

Sampler::~Sampler() = default;

bool Sampler::alive() const {
  if (series_.views.empty() || !series_.views.back().processes) return false;
  for (const ProcessView& process : *series_.views.back().processes)
    if (process.state != 'Z' && process.state != 'X') return true;
  return false;
}

bool Sampler::log_only() const {
  if (!series_.other_host.name.empty()) return true;
  return target_.roots.empty() && target_.status_path.empty() && target_.launch_path.empty();
}

void Sampler::sample() {
  RunView view;
  view.wall = wall_seconds();
  view.monotonic = monotonic_seconds();
  if (!series_.views.empty() && was_paused(series_.views.back(), view)) series_.views.clear();
  read_processes(&view);
  if (devices_ != nullptr && !log_only()) {
    devices_->read(&view);
    own_devices_.restrict(visible_devices_, series_.in_container, &view);
  }
  read_files(&view);
  read_log(&view);
  read_config();
  look_for_room(&view);
  ask_server(&view);
  look_for_other_host(&view);
  if (!log_only()) {
    slow_.add(first_start_, &view, &series_);
    slow_.read_report(target_.output_dir, &series_);
  }
  series_.views.push_back(std::move(view));
  thin_views(&series_.views);
}

void Sampler::find_tree(double now) {
  next_scan_ = now + kScanEverySeconds;
  std::vector<std::int64_t> roots = target_.roots;
  roots.insert(roots.end(), tree_.begin(), tree_.end());  // those whose parent died stay ours
  const auto tree = run_tree(roots, reader_);
  std::set<std::int64_t> before = std::exchange(tree_, std::set<std::int64_t>(tree.begin(), tree.end()));
  for (const std::int64_t pid : before) {
    if (tree_.count(pid) != 0) continue;
    tables_of_processes_.forget(pid);
    known_.erase(pid);
  }
}

void Sampler::read_processes(RunView* view) {
  scanned_ = view->monotonic >= next_scan_;
  if (scanned_) find_tree(view->monotonic);
  std::vector<ProcessView> processes;
  const double up = reader_.uptime_seconds();
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (auto it = tree_.begin(); it != tree_.end();) {
    auto process = reader_.basics(*it, &tables_of_processes_);
    Known& known = known_[*it];
    if (!process || (!std::isnan(known.start_time) && known.start_time != process->start_time)) {
      tables_of_processes_.forget(*it);
      known_.erase(*it);  // gone, or its number was given to another
      it = tree_.erase(it);
      continue;
    }
    process->elapsed_seconds = up - process->start_time / ticks;
    if (std::isnan(known.start_time) || scanned_) look_closer(*view, &*process, &known);
    process->command = known.command;
    process->rank = known.rank;
    process->run_id = known.run_id;
    process->holds_device = known.holds_device;
    process->files_known = known.files_known;
    process->swap_bytes = known.swap_bytes;
    reader_.details(&*process, &tables_of_processes_);
    processes.push_back(std::move(*process));
    ++it;
  }
  // Until its first step the run may still wait for a port that somebody else has.
  if (scanned_ && series_.log.records == 0 && series_.log.last_step < 0)
    series_.port = look_at_port(reader_, series_.environment, tree_, first_start_ * ticks);
  // A log alone may be of a run on another machine: this one's memory says nothing about it.
  if (!log_only()) {
    view->host = reader_.host(processes.empty() ? 1 : processes.front().pid);
    view->processes = std::move(processes);
  }
  view->only_this_run = true;
}

/// What costs more, every few seconds; what only a process that runs can change, when it ran.
void Sampler::look_closer(const RunView& view, ProcessView* process, Known* known) {
  known->swap_bytes = reader_.swapped_bytes(process->pid);
  const bool ran = process->cpu_seconds != known->cpu_seconds || process->name != known->name;
  if (!ran && view.monotonic - known->looked_inside < kInsideEverySeconds) return;
  known->looked_inside = view.monotonic;
  known->cpu_seconds = process->cpu_seconds;
  known->name = process->name;
  look_inside(view, *process, known);
}

/// Command line, environment, open files.
void Sampler::look_inside(const RunView& view, const ProcessView& process, Known* known) {
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::int64_t pid = process.pid;
  known->start_time = process.start_time;
  if (std::string command = reader_.command(pid); !command.empty())  // one that is defunct has none any more
    known->command = std::move(command);
  const auto environment = reader_.environment(pid);
  if (const auto found = environment.find("EAGLET_RUN_ID"); found != environment.end())
    known->run_id = found->second;
  for (const char* name : kRankNames)
    if (const auto found = environment.find(name); found != environment.end() && known->rank < 0)
      known->rank = whole_number(found->second).value_or(-1);
  if (const auto found = environment.find("CUDA_VISIBLE_DEVICES"); found != environment.end())
    visible_devices_.insert(found->second);
  if (const auto found = environment.find("CUDA_DEVICE_ORDER");
      found != environment.end() && found->second == "PCI_BUS_ID")
    own_devices_.numbered_by_bus();
  opened_.push_back({pid, known->command, reader_.open_files(pid)});
  for (const auto& file : opened_.back().files) {
    known->files_known = true;
    known->holds_device = known->holds_device || is_device_file(file.path);
    if (file.writable && !target_.log_path.empty() && file.path == target_.log_path)
      log_position_ = file.position;
  }
  // The launcher's says less than a rank's.
  if (series_.environment.empty() || (is_of_rank(environment) && !is_of_rank(series_.environment)))
    series_.environment = environment;
  const double start = process.start_time / ticks;
  first_start_ = std::isnan(first_start_) ? start : std::min(first_start_, start);
  if (std::isnan(series_.run_began)) series_.run_began = view.wall - process.elapsed_seconds;
}

void Sampler::read_files(RunView* view) {
  // Files that appear later (log, output directory, status) are looked for at each scan.
  if (scanned_) {
    find_files(reader_, opened_, &target_);
    opened_.clear();
    files_.clear();
    if (!target_.output_dir.empty()) files_ = output_files(target_.output_dir);
    look_for_data(view->monotonic);
  }
  series_.output_dir = target_.output_dir;
  if (target_.output_dir.empty()) return;
  view->files = files_;
  if (target_.status_path.empty()) return;
  const auto status = read_status(target_.status_path);
  if (!status.ok()) return;
  const bool ours = tree_.empty() || tree_.count(status->pid) != 0;
  if (!ours) return;  // an older run's, in the same directory
  view->status = *status;
  view->status_updated = mtime_of(target_.status_path);
}

/// Which data the run reads, and what that is. Files are opened as the run goes on: asked until some are
/// seen.
void Sampler::look_for_data(double now) {
  if (series_.data_from.folder.empty() && data_pause_.over(now, tree_.size()))
    series_.data_from = find_open_data(reader_, {tree_.begin(), tree_.end()}, target_.output_dir);
  if (!series_.views.empty())
    look_at_data(RunConfig(series_), files_, series_.data_from.folder, &series_.data);
}

/// Asked for at each scan only: a file system on a network may take its time to answer.
void Sampler::look_for_room(RunView* view) {
  if (scanned_) {
    disk_ = disk_room(target_.output_dir);
    const std::string data = data_folder(RunConfig(series_), series_.data_from.folder);
    data_disk_ = same_filesystem(data, target_.output_dir) ? DiskRoom() : disk_room(data);
  }
  view->host.disk = disk_;
  view->host.data_disk = data_disk_;
}

/// A pid that a file names is one of that machine, and what this one does says nothing about the run.
void Sampler::look_for_other_host(RunView* view) {
  const bool lives_here = !target_.roots.empty() || !tree_.empty();
  if (scanned_) series_.other_host = lives_here ? OtherHost() : find_other_host(series_, *view, host_name());
  if (series_.other_host.name.empty()) return;
  view->processes.reset();
  view->devices.reset();
  view->device_processes.reset();
  HostView room;
  room.disk = view->host.disk;
  room.data_disk = view->host.data_disk;
  view->host = room;
}

void Sampler::read_log(RunView* view) {
  if (!target_.launch_path.empty())
    if (auto record = read_json_file(target_.launch_path); record.ok() && record->is_object()) {
      if (const Json id = record->value("run_id", Json(nullptr)); id.is_string())
        series_.name = id.get<std::string>();
      series_.launch_record = std::move(*record);
    }
  read_text_log(view);
  read_trackio(view->monotonic);
  if (series_.log.records > 0 || series_.log.bars > 0) return;
  // No metric in the text: the event files may have them, or the trainer's own tables.
  events_.poll(files_);
  if (!events_.any()) tables_.poll(files_);
  if (!events_.any() && !tables_.any() && !trackio_.any()) return;
  LogFacts facts = events_.any() ? events_.facts() : tables_.any() ? tables_.facts() : trackio_.facts();
  facts.errors = series_.log.errors;
  facts.finished = series_.log.finished;
  facts.last_lines = series_.log.last_lines;
  series_.log = std::move(facts);
  series_.log_known = true;
  view->log.last_step = series_.log.last_step;
  if (events_.any() || tables_.any()) return;
  view->log.metric_time = trackio_.newest_time();
  view->log.records = series_.log.records;
  if (view->log.known) return;
  view->log.known = true;  // no text: the tracker's records are all there is
  view->log.bytes = 0;
  view->log.mtime = trackio_.newest_time();
}

/// The file may come later than the run. Where the text tells the metrics, a tracker's file must be the run's
/// own for sure (open, or in its output directory); else the only one that changed since it began will do.
void Sampler::read_trackio(double now) {
  const bool text_tells = series_.log.records > 0;
  if (now >= next_trackio_) {
    if (trackio_path_.empty()) trackio_path_ = target_.tracker_path;
    if (trackio_path_.empty()) {
      const std::map<std::string, std::string> nothing;
      trackio_path_ = find_trackio_file(target_.databases, text_tells ? nothing : series_.environment,
                                        target_.output_dir, series_.run_began);
    }
    if (!trackio_path_.empty()) trackio_.poll(trackio_path_);
    next_trackio_ =
        now + (trackio_.any() && !text_tells ? 0 : kScanEverySeconds);  // each look while it is the log
    series_.alerts = trackio_.alerts();
    series_.tracked = trackio_.machine();
    series_.tracker_config = trackio_.config();
  }
  if (!trackio_.trouble().empty())
    series_.log_read_note = "Trackio's " + trackio_path_ + " is not read: " + trackio_.trouble();
}

void Sampler::read_text_log(RunView* view) {
  const bool own_records = target_.log_path.size() > 10 && target_.log_path.ends_with("/log.jsonl");
  series_.log_deleted = target_.log_deleted && !own_records;
  if (target_.log_path.empty()) {
    series_.log = LogFacts();  // what other files told last time
    return;
  }
  if (log_ == nullptr || log_->path() != target_.log_path) log_ = std::make_unique<LogTail>(target_.log_path);
  const bool there = log_->poll();
  series_.log = log_->facts();
  if (!there) return;
  series_.log_known = true;
  series_.log_path = target_.log_path;
  series_.log_read_note = log_->note();
  view->log = log_->moment();
  view->log.position = log_position_;
}

void Sampler::read_config() {
  if (target_.config_path.empty()) return;
  if (scanned_ && series_.train_command.empty()) {
    const std::string folder = std::filesystem::path(target_.config_path).parent_path().string();
    series_.train_command = written_command(folder + "/train_command.txt");
  }
  const double mtime = mtime_of(target_.config_path);
  if (std::isnan(mtime) || (series_.config && mtime == series_.config_mtime)) return;
  const bool yaml =
      target_.config_path.size() > 5 && target_.config_path.substr(target_.config_path.size() - 5) == ".yaml";
  if (yaml) {
    const auto text = read_file(target_.config_path);
    if (!text.ok()) return;
    series_.config = simple_yaml(*text);
  } else {
    auto config = read_json_file(target_.config_path);
    if (!config.ok()) {
      // One that was touched a moment ago may be half written yet.
      const bool settled = wall_seconds() - mtime > kConfigSettlesSeconds;
      series_.config_error = settled ? target_.config_path + " cannot be read as JSON" : "";
      return;
    }
    series_.config = std::move(*config);
  }
  series_.config_error.clear();
  series_.config_mtime = mtime;
  series_.config_path = target_.config_path;
}

void Sampler::ask_server(RunView* view) {
  if (!server_.due(view->monotonic)) return;
  std::vector<std::string> commands;
  for (const auto& [pid, known] : known_) commands.push_back(known.command);
  server_.look(reader_, tree_, commands, view->monotonic, view);
}

void thin_views(std::vector<RunView>* all) {
  auto& views = *all;
  const double now = views.back().monotonic;
  double kept = -1e18;
  std::erase_if(views, [&](const RunView& view) {
    const double age = now - view.monotonic;
    if (age > kKeptSeconds) return true;
    if (age <= kDenseSeconds) return false;
    if (view.monotonic - kept < kSparseSeconds) return true;
    kept = view.monotonic;
    return false;
  });
}

void Sampler::forget_history() {
  if (series_.views.size() > 1) series_.views.erase(series_.views.begin(), series_.views.end() - 1);
}

}  // namespace eaglet::monitor

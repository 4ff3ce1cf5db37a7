#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "apps/command.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "formats/json.h"
#include "monitor/file_leftovers.h"
#include "monitor/orphans.h"
#include "monitor/verdict_plain.h"

namespace eaglet::apps {
namespace {

struct OrphanFlags {
  std::string end_run;
  std::vector<std::string> directories;
  double least_age_seconds = 10, patience_seconds = 10;
  bool dry_run = false, plain = false;
};

Json orphan_json(const monitor::Orphan& o) {
  return {{"pid", o.pid},
          {"user", o.user},
          {"age_seconds", o.age_seconds},
          {"rss_bytes", o.rss_bytes},
          {"gpu_mem_bytes", o.device_bytes},
          {"run_id", o.run_id},
          {"command", o.command},
          {"proof", o.proof},
          {"holds", o.holds}};
}

using Files = std::vector<monitor::FileLeftover>;

void print_text(const monitor::OrphanReport& report, const Files& files) {
  std::string out = report.orphans.empty() ? "no orphans\n"
                                           : fmt::format("{} orphan{}\n", report.orphans.size(),
                                                         report.orphans.size() == 1 ? "" : "s");
  for (const monitor::Orphan& o : report.orphans) {
    out +=
        fmt::format("  pid {}  user {}  age {}  {}  {:.60}\n", o.pid, o.user, human_duration(o.age_seconds),
                    o.run_id.empty() ? "no run id" : "run " + o.run_id, o.command);
    out += "    because " + o.proof + "\n";
    if (!o.holds.empty()) out += "    holds   " + o.holds + "\n";
  }
  for (const monitor::StaleMemory& s : report.stale)
    out += fmt::format("GPU {}: {} - {}\n", s.device, human_bytes(s.bytes), s.why);
  if (!files.empty())
    out += fmt::format("{} file{} of dead runs\n", files.size(), files.size() == 1 ? "" : "s");
  for (const monitor::FileLeftover& file : files)
    out += fmt::format("  {}  age {}  {}\n    because {}\n", file.path, human_duration(file.age_seconds),
                       human_bytes(file.bytes), file.why);
  for (const std::string& note : report.notes) out += "note    " + note + "\n";
  if (report.orphans.empty() && !files.empty()) {
    out += "next    look, then remove: rm -r '" + files.front().path + "'\n";
  } else if (!report.orphans.empty()) {
    const monitor::Orphan& first = report.orphans.front();
    out += first.run_id.empty() ? fmt::format("next    look, then end it by id: kill {}\n", first.pid)
                                : fmt::format("next    eaglet orphans --end {}\n", first.run_id);
  }
  write_whole(STDOUT_FILENO, out);
}

/// One orphan a line: pid, user, seconds, bytes, bytes of GPU memory, run id, what it holds, command. Of a
/// file there are seconds, bytes, why, and its path in the command's place.
void print_plain(const monitor::OrphanReport& report, const Files& files) {
  std::string out;
  for (const monitor::Orphan& o : report.orphans)
    out += monitor::plain_row({std::to_string(o.pid), fmt::format("{}", o.user),
                               fmt::format("{:.0f}", o.age_seconds), fmt::format("{:.0f}", o.rss_bytes),
                               fmt::format("{:.0f}", o.device_bytes), o.run_id, o.holds, o.command});
  for (const monitor::FileLeftover& file : files)
    out += monitor::plain_row({"", "", fmt::format("{:.0f}", file.age_seconds),
                               fmt::format("{:.0f}", file.bytes), "", "", file.why, file.path});
  write_whole(STDOUT_FILENO, out);
}

/// Ends, then looks again: what was freed, what remains.
Status end_run(const OrphanFlags& flags, monitor::OrphanReport* report, monitor::DeviceSource* devices,
               const monitor::ProcReader& reader) {
  std::size_t meant = 0;
  double memory = 0;
  for (const monitor::Orphan& o : report->orphans)
    if (o.run_id == flags.end_run && o.ours) {
      ++meant;
      memory += o.device_bytes;
    }
  if (meant == 0)
    return Status(StatusCode::kNotFound, "no orphan of yours belongs to run '" + flags.end_run + "'", {},
                  "eaglet orphans lists them with their run ids");
  if (flags.dry_run) {
    write_whole(STDOUT_FILENO, fmt::format("would end {} process{} of run {}\n", meant,
                                           meant == 1 ? "" : "es", flags.end_run));
    return {};
  }
  const auto remain = monitor::end_orphans(report->orphans, flags.end_run, flags.patience_seconds, reader);
  *report = monitor::find_orphans(reader, devices, flags.least_age_seconds);
  write_whole(STDOUT_FILENO,
              fmt::format("ended {} of {} process{} of run {}{}\n", meant - remain.size(), meant,
                          meant == 1 ? "" : "es", flags.end_run,
                          memory > 0 ? ", " + human_bytes(memory) + " of GPU memory were theirs" : ""));
  if (interrupted()) return Status(StatusCode::kInterrupted, "stopped before all had ended");
  return {};
}

/// Of the directories that were named, and what hinders any run.
Result<Files> left_files(const OrphanFlags& flags, const monitor::ProcReader& reader) {
  Files files = monitor::stale_build_locks(reader);
  for (const std::string& directory : flags.directories) {
    EAGLET_ASSIGN_OR_RETURN(const Files here, monitor::file_leftovers(directory, reader));
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

Json file_json(const monitor::FileLeftover& file) {
  return {{"path", file.path}, {"age_seconds", file.age_seconds}, {"bytes", file.bytes}, {"proof", file.why}};
}

Status run_orphans(const OrphanFlags& flags, Context& context) {
  const monitor::ProcReader reader;
  EAGLET_ASSIGN_OR_RETURN(const Files files, left_files(flags, reader));
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<monitor::DeviceSource> devices, monitor::open_devices());
  monitor::OrphanReport report = monitor::find_orphans(reader, devices.get(), flags.least_age_seconds);
  if (!flags.end_run.empty()) EAGLET_RETURN_IF_ERROR(end_run(flags, &report, devices.get(), reader));
  if (context.json) {
    Json json = {{"schema", 1},
                 {"orphans", Json::array()},
                 {"stale_memory", Json::array()},
                 {"files", Json::array()},
                 {"notes", report.notes}};
    for (const monitor::Orphan& o : report.orphans) json["orphans"].push_back(orphan_json(o));
    for (const monitor::StaleMemory& s : report.stale)
      json["stale_memory"].push_back({{"device", s.device}, {"bytes", s.bytes}, {"why", s.why}});
    for (const monitor::FileLeftover& file : files) json["files"].push_back(file_json(file));
    write_whole(STDOUT_FILENO, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else if (flags.plain) {
    print_plain(report, files);
  } else {
    print_text(report, files);
  }
  context.verdict = report.orphans.empty() && report.stale.empty() && files.empty() ? 0 : 1;
  return {};
}

}  // namespace

Run add_orphans(CLI::App& app) {
  auto flags = std::make_shared<OrphanFlags>();
  app.description(
      "Find processes, GPU memory and half-written files that dead runs left behind, with the proof.");
  app.footer(
      "  eaglet orphans                               lists them; exit code 1 when there are any\n"
      "  eaglet orphans runs/mine                     also half checkpoints, temporary files and locks in "
      "there\n"
      "  eaglet orphans --end k25-a --dry-run         what would be ended\n"
      "  eaglet orphans --end k25-a                   ends your own processes of that run: TERM, then KILL");
  app.add_option("directory", flags->directories, "directories of runs, to look for half-written files in")
      ->type_name("DIR");
  app.add_option("--end", flags->end_run, "end this user's orphans of that run id; never by name")
      ->type_name("RUN_ID");
  app.add_option("--age", flags->least_age_seconds, "seconds a process must be old");
  app.add_option("--patience", flags->patience_seconds, "seconds between TERM and KILL");
  app.add_flag("--plain", flags->plain, "one orphan a line, columns between tabs, for cut and awk");
  app.add_flag("--dry-run", flags->dry_run, "with --end: only say what would be ended");
  return [flags](Context& context) { return run_orphans(*flags, context); };
}

}  // namespace eaglet::apps

#include "monitor/next_command.h"

namespace eaglet::monitor {
namespace {

struct Look {
  const char* judgement;
  const char* command;  // {pid} first rank, {log}, {config}, {output}, {data}: what is not known leaves the
                        // next row a try
};
// What an engineer would type. Rows of one judgement stand in the order in which they are tried.
constexpr Look kLooks[] = {
    {"run_wait", "ps -eLo pcpu,pid,psr,comm --sort=-pcpu | head -20"},
    {"server", "tail -20 {log}"},
    {"server", "ps -eo pid,stat,pcpu,etime,args --sort=-pcpu | head -20"},
    {"workers", "grep -n -i -E 'worker|killed|bus error' {log} | tail -5"},
    {"log_error", "tail -50 {log}"},
    {"storage", "grep -E 'nfs|lustre|ceph|fuse' /proc/mounts; cat /proc/{pid}/stack"},
    {"log_deleted", "cat /proc/{pid}/fd/1 > saved.log"},
    {"power", "py-spy dump --pid {pid}"},
    {"gpu_memory", "nvidia-smi --query-compute-apps=pid,used_gpu_memory --format=csv"},
    {"gpu_memory_growth", "py-spy dump --pid {pid}"},
    {"lost", "dmesg -T | grep -i -E 'nvrm|xid' | tail -20"},
    {"xid", "dmesg -T | grep -i -E 'nvrm|xid' | tail -20"},
    {"ecc", "nvidia-smi -q -d ECC,ROW_REMAPPER"},
    {"temperature", "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"},
    {"throttle", "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE"},
    {"straggler", "nvidia-smi dmon -s pucm -c 5"},
    {"pcie", "nvidia-smi dmon -s t -c 5"},
    {"energy", "nvidia-smi -q -d PERFORMANCE,CLOCK"},
    {"mfu", "py-spy dump --pid {pid}"},
    {"memory", "ps -eo rss,pid,args --sort=-rss | head -20"},
    {"memory_growth", "ps -o rss,pid,args --sort=-rss --ppid {pid} --pid {pid}"},
    {"memory_pressure", "ps -eo rss,pid,args --sort=-rss | head -20"},
    {"cgroup_memory", "ps -eo rss,pid,args --sort=-rss | head -20"},
    {"cpu_pressure", "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat"},
    {"cpu_quota", "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat"},
    {"shm", "df -h /dev/shm; ls -lS /dev/shm | head"},
    {"oom_kill", "dmesg -T | grep -i 'killed process' | tail -5"},
    {"swap", "ps -eo rss,pid,args --sort=-rss | head -20"},
    {"disk", "df -h {output}; du -sh {output}/* | sort -h | tail"},
    {"inodes", "df -i {output}"},
    {"data_disk", "df -h {data}; du -sh {data}/* | sort -h | tail"},
    {"data_inodes", "df -i {data}"},
    {"packing", "grep -n -i -E 'pack|seq_len|batch' {config}"},
    {"packing", "grep -n -i -E 'pack|seq.?len|batch' {log} | head"},
    {"declared", "grep -n . {config}"},
    {"steps", "grep -n -i -E 'step|epoch|batch|accum' {config}"},
    {"lr_horizon", "grep -n -i -E 'step|sched|warmup' {config}"},
    {"lr", "grep -n -i -E 'lr|learning|sched|warmup' {config}"},
    {"artifact", "ls -l {config}"},
    {"artifact", "ls -l {output}"},
    {"coverage", "grep -n -i vocab {config}"},
    {"warm_start", "grep -n -i -E 'load|skip|missing|unexpected' {log} | head"},
    {"parameters", "grep -n -i -E 'freez|head|hidden|intermediate|layer' {config}"},
    {"memory_estimate", "grep -n -i -E 'seq_len|ttt|vocab' {config}"},
    {"ranks", "ps -eo pid,ppid,stat,etime,args | grep -i rank"},
    {"bandwidth", "cat /proc/{pid}/io; sleep 10; cat /proc/{pid}/io"},
    {"vocabulary_maps", "eaglet inspect {output} --verify"},
    {"finite", "grep -n -i -m 5 -E '[=: ]-?(nan|inf)' {log}"},
    {"zero", "grep -n -i -E 'mask|skip|fail|pad' {log} | head"},
    {"first_loss", "grep -n -i -E 'load|skip|missing|unexpected' {log} | head"},
    {"data_wait", "cat /proc/{pid}/io; sleep 10; cat /proc/{pid}/io"},
    {"speed", "nvidia-smi dmon -s pucm -c 5"},
};

bool replace(std::string* text, const char* name, const std::string& value) {
  for (std::size_t at = text->find(name); at != std::string::npos; at = text->find(name, at + value.size())) {
    if (value.empty()) return false;
    text->replace(at, std::string(name).size(), value);
  }
  return true;
}

/// As a shell takes it.
std::string quoted(const std::string& path) {
  if (path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+=:@%,-") ==
      std::string::npos)
    return path;
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string next_command(const Judgement& judgement, const RunSeries& series, const Activity& activity) {
  const std::string pid = activity.ranks.empty() ? "" : std::to_string(activity.ranks.front().pid);
  const std::string data = series.views.empty() ? "" : series.views.back().host.data_disk.path;
  const bool no_gpu = !activity.devices_known;
  for (const Look& look : kLooks) {
    if (judgement.name != look.judgement) continue;
    std::string command = look.command;
    if (no_gpu && command.rfind("nvidia-smi", 0) == 0) continue;
    if (replace(&command, "{pid}", pid) && replace(&command, "{log}", quoted(series.log_path)) &&
        replace(&command, "{config}", quoted(series.config_path)) &&
        replace(&command, "{output}", quoted(series.output_dir)) && replace(&command, "{data}", quoted(data)))
      return command;
  }
  if (!series.live) return "eaglet doctor --all --snapshots FOLDERS";
  return "eaglet doctor " +
         (!pid.empty() ? pid : quoted(series.log_path.empty() ? series.name : series.log_path)) + " --all";
}

}  // namespace eaglet::monitor

#include "monitor/open_data.h"

#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostProcesses = 8;  // ranks and loaders of one run read the same data
constexpr const char* kDataEndings[] = {".safetensors", ".shard", ".npy",  ".npz",     ".arrow", ".parquet",
                                        ".pt",          ".bin",   ".zarr", ".jsonl",   ".gz",    ".zst",
                                        ".h5",          ".hdf5",  ".tar",  ".msgpack", ".mds"};

/// Not weights of a model, which are mapped while it loads.
bool looks_like_data(const std::string& path, const std::string& output_dir) {
  if (path.empty() || path.front() != '/' || path.ends_with(" (deleted)")) return false;
  if (!output_dir.empty() && starts_with(path, output_dir + "/")) return false;
  for (const char* system : {"/usr/", "/lib/", "/lib64/", "/dev/", "/proc/", "/sys/", "/etc/"})
    if (starts_with(path, system)) return false;
  const std::string name = std::filesystem::path(path).filename().string();
  if (contains(path, "/site-packages/") || starts_with(name, "model") || starts_with(name, "pytorch_model") ||
      starts_with(name, "consolidated") || contains(name, "optimizer") || contains(name, "tokenizer"))
    return false;
  for (const char* ending : kDataEndings)
    if (name.ends_with(ending)) return true;
  return false;
}

/// Last column of a line of /proc/PID/maps: a path, which may hold blanks, or nothing.
std::string mapped_path(std::string_view line) {
  const std::size_t at = line.find('/');
  return at == std::string_view::npos ? std::string() : std::string(line.substr(at));
}

}  // namespace

bool DataLookPause::over(double now, std::size_t processes) {
  constexpr double kFirstSeconds = 30, kMostSeconds = 600;
  if (processes > most_processes_) {
    most_processes_ = processes;
    pause_seconds_ = std::min(pause_seconds_, kFirstSeconds);
  }
  if (now - last_ < pause_seconds_) return false;
  last_ = now;
  pause_seconds_ = std::clamp(2 * pause_seconds_, kFirstSeconds, kMostSeconds);
  return true;
}

std::string network_filesystem(const std::string& path) {
  struct Kind {
    unsigned long magic;
    const char* name;
  };
  // statfs(2), and the headers of those that are not part of the kernel.
  constexpr Kind kinds[] = {{0x6969, "NFS"},      {0xff534d42, "SMB"},    {0xfe534d42, "SMB"},
                            {0x517b, "SMB"},      {0x0bd00bd0, "Lustre"}, {0x00c36400, "Ceph"},
                            {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"}, {0x65735546, "FUSE"},
                            {0x01021997, "9P"},   {0x5346414f, "AFS"}};
  struct statfs info = {};
  if (::statfs(path.c_str(), &info) != 0) return {};
  for (const Kind& kind : kinds)
    if ((static_cast<unsigned long>(info.f_type) & 0xffffffff) == kind.magic) return kind.name;
  return {};
}

DataFrom find_open_data(const ProcReader& reader, const std::vector<std::int64_t>& tree,
                        const std::string& output_dir) {
  std::set<std::string> files;
  for (std::size_t i = 0; i < tree.size() && i < kMostProcesses; ++i) {
    for (const auto& file : reader.open_files(tree[i]))
      if (file.fd > 2 && !file.writable && looks_like_data(file.path, output_dir)) files.insert(file.path);
    const std::string maps = reader.map_table(tree[i]);
    for (const std::string_view line : split(maps, '\n'))
      if (const std::string path = mapped_path(line); looks_like_data(path, output_dir)) files.insert(path);
  }
  std::map<std::string, std::int64_t> folders;
  for (const std::string& file : files) ++folders[std::filesystem::path(file).parent_path().string()];
  DataFrom found;
  for (const auto& [folder, count] : folders)
    if (count > found.files) {
      found.folder = folder;
      found.files = count;
    }
  if (!found.folder.empty()) found.filesystem = network_filesystem(found.folder);
  return found;
}

}  // namespace eaglet::monitor

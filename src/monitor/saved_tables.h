#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// Readers for tables that people save and mail. None of them fails: what a cell does not say is unknown.

/// `ps -eo pid,ppid,stat,pcpu,time,etime,args` and the like: columns are found by the header; without one
/// they are taken in that order.
std::vector<ProcessView> read_ps(std::string_view text);
/// nvidia-smi --query-gpu=... --format=csv. "[N/A]", "[Not Supported]" and anything else that is no number is
/// unknown; "[GPU is lost]", "ERR!" and "[GPU requires reset]" mark the device as lost.
std::vector<DeviceView> read_gpu_csv(std::string_view text);
/// nvidia-smi --query-compute-apps=pid,used_gpu_memory,gpu_uuid --format=csv, or with gpu_index.
std::vector<DeviceProcess> read_compute_apps(std::string_view text, const std::vector<DeviceView>& devices);
/// `nvidia-smi pmon -s u`: how much of the time each of these processes kept its GPU busy. "-" is no figure,
/// as is more than 100.
void read_pmon(std::string_view text, std::vector<DeviceProcess>* processes);
/// `nvidia-smi dmon -s t`: what crosses each device's link.
void read_dmon_link(std::string_view text, std::vector<DeviceView>* devices);
/// Lines of "mtime,size,path"; mtime is an ISO time or seconds since 1970.
std::vector<FileView> read_file_list(std::string_view text);

/// "--rank 2", "--rank=2", "--local_rank=2", "rank:2" in a command line; -1 when there is none.
std::int64_t rank_of_command(std::string_view command);

}  // namespace eaglet::monitor

#pragma once

#include <string>
#include <string_view>

#include "monitor/view.h"

namespace eaglet::monitor {

/// A machine other than `here` that the files of a run name as its own: its launch record, its status file,
/// the newest event file's name, what its log says (torchrun's report of a failure, NCCL's lines). No name
/// when none of them names one, or the first of these that does names this machine. To be asked only of a run
/// of which nothing lives here.
OtherHost find_other_host(const RunSeries& series, const RunView& view, const std::string& here);

/// "events.out.tfevents.1700000000.node7.4711.0" -> "node7"; "" when it is none.
std::string host_of_event_file(std::string_view path);
/// "host      : node7", "hostname: node7", "node7:4711:4722 [0] NCCL INFO ..." -> "node7"; "" for other
/// lines.
std::string host_of_line(std::string_view line);

}  // namespace eaglet::monitor

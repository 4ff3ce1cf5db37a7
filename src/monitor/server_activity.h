#pragma once

#include "monitor/activity.h"

namespace eaglet::monitor {

/// What a server did between its answers in the window.
ServerActivity server_activity(const RunSeries& series, std::size_t first_view);

/// Whether the run is a server and nothing else: one that trains beside it is judged by its steps.
bool is_server(const RunSeries& series, const Activity& activity);

/// "32 running, 4 waiting, 812 prompt and 2311 generated tokens/s, KV cache 41 %".
std::string server_text(const ServerActivity& server);

}  // namespace eaglet::monitor

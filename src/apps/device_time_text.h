#pragma once

#include <string>

#include "monitor/verdict.h"

namespace eaglet::apps {

/// "products 61 %, head_loss 20 %, ... of a step; waits for data 0.4 %, MFU 41 %, 640 W, 31.2 GiB": where the
/// device's time goes, as the run's log tells of the newest step that was measured. Empty when it does not.
std::string device_time_text(const monitor::Verdict& verdict);

}  // namespace eaglet::apps

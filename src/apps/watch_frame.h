#pragma once

#include <string>
#include <vector>

#include "apps/watch_history.h"
#include "monitor/verdict_text.h"

namespace eaglet::apps {

struct FrameStyle {
  int columns = 80, rows = 24;
  bool color = false, ascii = false;
  enum class Page { kOverview, kLog, kEvents, kDevices } page = Page::kOverview;
  bool paused = false, help = false;
  int zoom = 1;  // curves show the newest 1/zoom of what is known
};

/// One screen of `eaglet watch`: exactly style.rows lines, none wider than style.columns (colour codes
/// apart).
std::vector<std::string> watch_frame(const monitor::Verdict& verdict, const WatchHistory& history,
                                     const FrameStyle& style);

/// Values as a line of block characters (or ASCII), newest at the right, `columns` wide. Values that are not
/// finite leave a gap.
std::string spark_line(const std::vector<double>& values, int columns, bool ascii);

}  // namespace eaglet::apps

#pragma once

#include <string>

#include "apps/watch_history.h"

namespace eaglet::apps {

/// The page of a run: what `--listen` serves and `--html` writes. Verdict table, curves, events; readable
/// without JavaScript. The file holds everything inside; the served one fetches its style and its script from
/// the server.
std::string watch_page_file(const monitor::Verdict& verdict, const WatchHistory& history);
std::string watch_page_served(const monitor::Verdict& verdict, const WatchHistory& history);
/// What changes from second to second: the content of the page's <main>.
std::string watch_page_content(const monitor::Verdict& verdict, const WatchHistory& history);
const char* watch_page_style();
/// Replaces <main> when an event comes; greys it out when none came for a while.
const std::string& watch_page_script();

/// Two runs side by side: what was configured otherwise, and both curves.
std::string compare_page(const monitor::Verdict& a, const monitor::Verdict& b,
                         const std::string& differences_html);

}  // namespace eaglet::apps

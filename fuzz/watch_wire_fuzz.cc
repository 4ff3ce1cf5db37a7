#include "apps/history_file.h"
#include "apps/watch_frame.h"
#include "apps/watch_page.h"
#include "fuzz_input.h"
#include "monitor/prometheus.h"
#include "monitor/verdict_plain.h"
#include "monitor/verdict_text.h"
#include "monitor/verdict_wire.h"

// What another machine sends: taken in, drawn in every way, and sent on again it stays what it is. Lines of a
// watcher's own file likewise.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace eaglet::monitor;
  if (const auto moment = eaglet::apps::history_moment(as_text(data, bytes))) {
    const std::string line = eaglet::apps::history_line(*moment);
    promise(eaglet::apps::history_line(*eaglet::apps::history_moment(line)) == line);
  }
  const auto json = eaglet::parse_json(as_text(data, bytes));
  if (!json.ok()) return 0;
  Verdict verdict, again;
  if (!verdict_from_wire(*json, &verdict).ok()) return 0;
  promise(!verdict_text(
               verdict, [](const std::string& text, Level) { return text; }, true)
               .empty());
  promise(verdict_nagios(verdict).find('\n') == verdict_nagios(verdict).size() - 1);
  promise(parse_prometheus(prometheus_text(verdict, "1")).ok());
  promise(moment_plain(verdict).find('\n') == moment_plain(verdict).size() - 1);
  (void)verdict_plain(verdict);
  eaglet::apps::WatchHistory history;
  history.add(verdict);
  history.add(verdict);
  const std::string page = eaglet::apps::watch_page_file(verdict, history);
  promise(page.find("<script") == page.rfind("<script"));  // the page's own
  promise(eaglet::apps::watch_frame(verdict, history, {}).size() == 24);
  std::map<std::string, std::int64_t> sent;
  promise(verdict_from_wire(verdict_to_wire(verdict, &sent), &again).ok());
  promise(verdict_json(verdict) == verdict_json(again));
  return 0;
}

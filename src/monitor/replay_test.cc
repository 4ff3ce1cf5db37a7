#include "monitor/replay_world.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

/// Names in backquotes in a row of the table of judgements.
std::set<std::string> names_of_docs() {
  const auto docs = read_file(EAGLET_TESTDATA "/../docs/watch.md");
  std::set<std::string> names;
  if (!docs.ok()) return names;
  for (const std::string_view row : split(*docs, '\n')) {
    const auto cells = split(row, '|');
    const bool judgements =
        cells.size() > 3 && (trim(cells[1]) == "process" || trim(cells[1]) == "hardware" ||
                             trim(cells[1]) == "config" || trim(cells[1]) == "learning");
    if (!judgements) continue;
    const auto parts = split(row, '`');
    for (std::size_t i = 1; i < parts.size(); i += 2)
      if (parts[i].find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string_view::npos)
        names.emplace(parts[i]);
  }
  names.erase("max_seq_len");  // a setting, named there as well
  return names;
}

TEST(Replays, EveryFaultInTimeAndNoFalseAlarm) {
  std::set<std::string> warned_or_worse;
  for (const auto& list :
       {event_scenarios(), machine_scenarios(), configuration_scenarios(), learning_scenarios()})
    run_replays(list, &warned_or_worse);
  // What only informs is never bad; everything else that docs/watch.md lists was bad in some replay.
  const std::set<std::string> informs = {"cpu",      "log",      "cores",     "package_power",
                                         "network",  "cost",     "precision", "plateau",
                                         "clipping", "learning", "data",      "disk_wait"};
  for (const std::string& name : names_of_docs())
    EXPECT_TRUE(warned_or_worse.count(name) != 0 || informs.count(name) != 0)
        << "no replay shows " << name << " going bad";
  for (const std::string& name : warned_or_worse)
    EXPECT_TRUE(names_of_docs().count(name) != 0) << "docs/watch.md does not list " << name;
}

}  // namespace
}  // namespace eaglet::monitor

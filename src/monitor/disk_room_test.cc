#include "monitor/disk_room.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/test_directory.h"
#include "monitor/data_look.h"
#include "monitor/sampler.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

TEST(DiskRoom, OfAFolder) {
  const std::string dir = test_directory();
  const DiskRoom room = disk_room(dir);
  EXPECT_EQ(room.path, dir);
  EXPECT_GT(room.total, 1e6);
  EXPECT_GE(room.free, 0);
  EXPECT_LE(room.free, room.total);
  for (const char* none : {"", "/no/such/place", "/proc"})
    EXPECT_TRUE(std::isnan(disk_room(none).free)) << none << " has no room to speak of";
  EXPECT_TRUE(same_filesystem(dir, dir + "/.."));
  EXPECT_FALSE(same_filesystem(dir, "/proc"));
  EXPECT_FALSE(same_filesystem(dir, ""));
}

TEST(DiskRoom, TheFolderOfTheData) {
  const std::string dir = test_directory();
  RunSeries series;
  series.config = Json{{"data_path", "prompts"}, {"hidden_states_path", dir}};
  EXPECT_EQ(data_folder(RunConfig(series), "/open"), "/open") << "open files are the truth";
  EXPECT_EQ(data_folder(RunConfig(series), ""), dir);
  series.config = Json{{"data_path", "monitor"}, {"data_dir", dir + "/gone"}};
  EXPECT_EQ(data_folder(RunConfig(series), ""), "") << "relative to what, or not there";
}

/// What the sampler sees of a run whose checkpoints go to `out` and whose configuration names `data`.
HostView rooms(const std::string& out, const std::string& data) {
  std::ofstream(out + "/train_config.json") << Json{{"hidden_states_path", data}}.dump();
  std::ofstream(out + "/train.log") << "step=1 loss=7\n";
  Target target;
  target.name = "made up";
  find_files_in(out, &target);
  Sampler sampler(target, ProcReader(), nullptr);
  sampler.sample();
  return sampler.series().views.back().host;
}

TEST(DiskRoom, TheDataHasItsOwnOnlyOnAnotherFileSystem) {
  const std::string out = test_directory();
  if (same_filesystem(out, "/dev/shm") || !std::filesystem::is_directory("/dev/shm"))
    GTEST_SKIP() << "one file system";
  const HostView apart = rooms(out, "/dev/shm");
  EXPECT_EQ(apart.disk.path, out);
  EXPECT_EQ(apart.data_disk.path, "/dev/shm");
  EXPECT_GT(apart.data_disk.total, 0);
  EXPECT_EQ(rooms(out, out + "/..").data_disk.path, "") << "one file system is judged once";
}

}  // namespace
}  // namespace eaglet::monitor

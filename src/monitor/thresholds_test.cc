#include "monitor/thresholds.h"

#include <gtest/gtest.h>

#include <set>

namespace eaglet::monitor {
namespace {

TEST(Thresholds, AreSetByNameAndByShortNameWithItsUnit) {
  Thresholds t;
  for (const char* assignment :
       {"spin_r=0.2", "drain_s = 30", "load_MBps=250", "mem_crit_pct=90", "stale_gpu_GB=2"})
    EXPECT_TRUE(set_threshold(assignment, &t).ok()) << assignment;
  EXPECT_DOUBLE_EQ(t.spin_r, 0.2);
  EXPECT_DOUBLE_EQ(t.drain_seconds, 30);
  EXPECT_DOUBLE_EQ(t.load_bytes_per_second, 250e6);
  EXPECT_DOUBLE_EQ(t.memory_crit, 0.90);
  EXPECT_DOUBLE_EQ(t.stale_gpu_bytes, 2e9);
}

// The defaults as the short names write them are the defaults.
TEST(Thresholds, ShortNamesMeanTheSameNumbers) {
  const Thresholds untouched;
  for (const char* assignment :
       {"idle_power_frac=0.10", "stall_min_s=60", "compile_s=900", "recompile_s=600", "load_MBps=100",
        "save_MBps=50", "drain_s=600", "artifact_s=120", "settle_s=30", "orphan_age_s=10", "stale_gpu_GB=1",
        "disk_free_ckpts=2", "mem_crit_pct=95", "shm_crit_pct=90", "windows_s=15,60,300"}) {
    Thresholds t;
    ASSERT_TRUE(set_threshold(assignment, &t).ok()) << assignment;
    for (const ThresholdEntry& entry : threshold_entries())
      EXPECT_NEAR(t.*entry.at, untouched.*entry.at, 1e-12 * (1 + untouched.*entry.at))
          << assignment << ": " << entry.name;
  }
}

TEST(Thresholds, TheThreeWindowsTogether) {
  Thresholds t;
  ASSERT_TRUE(set_threshold("windows_s = 5, 20,100", &t).ok());
  EXPECT_EQ(t.rank_gone_seconds, 5);
  EXPECT_EQ(t.error_seconds, 5);
  EXPECT_EQ(t.window_seconds, 20);
  EXPECT_EQ(t.slow_window_seconds, 100);
  for (const char* wrong :
       {"windows_s", "windows_s=", "windows_s=60", "windows_s=15,60", "windows_s=60,15,300",
        "windows_s=0,60,300", "windows_s=15,60,nan", "windows_s=15,60,300,900", "windows_s=a,b,c",
        "windows_s=15,x,60,300", "windows_s=15,60,inf"})
    EXPECT_FALSE(set_threshold(wrong, &t).ok()) << wrong;
  EXPECT_EQ(t.window_seconds, 20) << "what is wrong changes nothing";
}

TEST(Thresholds, WhatIsNoneIsNamed) {
  Thresholds t;
  EXPECT_NE(set_threshold("drain_ms=3", &t).message().find("drain_ms"), std::string::npos);
  EXPECT_FALSE(set_threshold("spin_r=nan", &t).ok());
  EXPECT_FALSE(set_threshold("spin_r", &t).ok());
  std::set<std::string> names;
  for (const ThresholdEntry& entry : threshold_entries())
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
}

}  // namespace
}  // namespace eaglet::monitor

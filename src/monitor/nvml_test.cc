// NVML against a made-up library (tests/fake_nvml.cc), whose scenario file says what each call answers.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "base/test_directory.h"
#include "monitor/devices.h"

namespace eaglet::monitor {
namespace {

RunView read_scenario(const std::string& scenario, const char* library = EAGLET_FAKE_NVML) {
  const std::string path = test_directory() + "/scenario";
  std::ofstream(path) << scenario;
  ::setenv("FAKE_NVML_SCENARIO", path.c_str(), 1);
  auto source = open_nvml(library);
  RunView view;
  EXPECT_TRUE(source.ok()) << source.status().message();
  if (source.ok()) (*source)->read(&view);
  return view;
}

TEST(Nvml, AllReadings) {
  const RunView view = read_scenario(
      "device name=H200 uuid=GPU-a busy=91 power=612400 limit=700000 total=150000000000 used=70000000000 "
      "reserved=500000000 "
      "celsius=61 slowdown=87 reasons=4 energy=123456\n"
      "process 0 pid=4711 bytes=69000000000\n"
      "device name=H200 uuid=GPU-b busy=100 power=118000 limit=700000 total=150000000000 used=1 ecc=3\n");
  ASSERT_TRUE(view.devices && view.devices->size() == 2);
  const DeviceView& one = view.devices->front();
  EXPECT_EQ(one.name, "H200");
  EXPECT_EQ(one.busy_pct, 91);
  EXPECT_DOUBLE_EQ(one.power_w, 612.4);
  EXPECT_EQ(one.limit_w, 700);
  EXPECT_EQ(one.used_bytes, 70.5e9) << "used and reserved, as nvidia-smi counts";
  EXPECT_EQ(one.reserved_bytes, 5e8);
  EXPECT_EQ(one.celsius, 61);
  EXPECT_EQ(one.slow_reasons, 4u);
  EXPECT_DOUBLE_EQ(one.energy_j, 123.456);
  EXPECT_EQ(view.devices->back().ecc_uncorrected, 3);
  ASSERT_EQ(view.device_processes->size(), 1u);
  EXPECT_EQ(view.device_processes->front().pid, 4711);
  EXPECT_EQ(view.device_processes->front().bytes, 69e9);
}

TEST(Nvml, TensorUnitsBetweenTwoLooks) {
  const std::string path = test_directory() + "/scenario";
  std::ofstream(path) << "device name=H200 busy=99 tensor=37\ndevice name=A100 busy=99\n";
  ::setenv("FAKE_NVML_SCENARIO", path.c_str(), 1);
  auto source = open_nvml(EAGLET_FAKE_NVML);
  ASSERT_TRUE(source.ok());
  RunView first, second;
  (*source)->read(&first);
  EXPECT_TRUE(std::isnan(first.devices->front().tensor_pct)) << "counters need two looks";
  (*source)->read(&second);
  EXPECT_DOUBLE_EQ(second.devices->front().tensor_pct, 37);
  EXPECT_TRUE(std::isnan(second.devices->back().tensor_pct)) << "a board without these counters";
}

TEST(Nvml, WhoKeepsTheDeviceBusy) {
  const std::string path = test_directory() + "/scenario";
  std::ofstream(path)
      << "device name=A100 busy=98\ndevice name=A100 busy=98\nprocess 0 pid=4711 bytes=5 sm=3,none\n"
         "process 0 pid=99 bytes=7 sm=94,95,7000\nprocess 1 pid=4712 bytes=5\n";
  ::setenv("FAKE_NVML_SCENARIO", path.c_str(), 1);
  auto source = open_nvml(EAGLET_FAKE_NVML);
  ASSERT_TRUE(source.ok());
  const auto look = [&] {
    RunView view;
    (*source)->read(&view);
    return *view.device_processes;
  };
  const auto first = look(), second = look(), third = look();
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].busy_pct, 3);
  EXPECT_EQ(first[1].busy_pct, 94);
  EXPECT_TRUE(std::isnan(first[2].busy_pct)) << "a board that cannot tell";
  EXPECT_EQ(second[0].busy_pct, 0) << "others ran, this one did not";
  EXPECT_EQ(second[1].busy_pct, 95);
  EXPECT_EQ(third[1].busy_pct, 0) << "7000 percent is no figure";
}

TEST(Nvml, WhatIsRefusedIsUnknown) {
  const RunView view = read_scenario(
      "device name=A100 busy=code3 power=code4 limit=400000 total=80000000000 used=5 mig=1 "
      "celsius=code3\nprocess 0 pid=7 bytes=-1\n");
  const DeviceView& device = view.devices->front();
  EXPECT_TRUE(std::isnan(device.busy_pct) && std::isnan(device.power_w) && std::isnan(device.celsius));
  EXPECT_TRUE(device.mig);
  EXPECT_FALSE(device.lost);
  EXPECT_TRUE(std::isnan(view.device_processes->front().bytes)) << "not available is not zero";
}

TEST(Nvml, LostGpuAndXid) {
  const RunView view = read_scenario("device name=H100 busy=code15 xid=79\n");
  EXPECT_TRUE(view.devices->front().lost);
  ASSERT_EQ(view.devices->front().xids.size(), 1u);
  EXPECT_EQ(view.devices->front().xids.front(), 79);
}

TEST(Nvml, AnOldLibraryLacksMostSymbols) {
  const RunView view = read_scenario(
      "device name=V100 busy=50 power=100000 total=32000000000 used=7\nprocess 0 pid=9 bytes=5\n",
      EAGLET_FAKE_NVML_OLD);
  const DeviceView& device = view.devices->front();
  EXPECT_EQ(device.busy_pct, 50);
  EXPECT_EQ(device.used_bytes, 7);
  EXPECT_TRUE(std::isnan(device.reserved_bytes));
  ASSERT_EQ(view.device_processes->size(), 1u) << "the 16-byte process structure";
  EXPECT_EQ(view.device_processes->front().bytes, 5);
}

TEST(Nvml, NoLibraryNoDriver) {
  EXPECT_EQ(open_nvml("libnothing-of-that-name.so.1").status().code(), StatusCode::kUnavailable);
  const std::string path = test_directory() + "/scenario";
  std::ofstream(path) << "init code9\n";
  ::setenv("FAKE_NVML_SCENARIO", path.c_str(), 1);
  EXPECT_EQ(open_nvml(EAGLET_FAKE_NVML).status().code(), StatusCode::kUnavailable);
}

TEST(NvidiaSmi, ItsCsvIsTheFallBack) {
  const std::string program = test_directory() + "/nvidia-smi";
  std::ofstream(program)
      << "#!/bin/sh\ncase \"$1\" in --query-gpu*) echo 'index, uuid, name, utilization.gpu [%], power.draw "
         "[W], power.limit [W], "
         "memory.used [MiB], memory.total [MiB], temperature.gpu, clocks.sm, clocks.max.sm'\n"
         "echo '0, GPU-x, H200, 91 %, 612.40 W, 700.00 W, 71212 MiB, 143771 MiB, 61, 1980 MHz, 1980 MHz';;\n"
         "*) echo 'pid, used_gpu_memory [MiB], gpu_uuid'; echo '4711, 100 MiB, GPU-x';; esac\n";
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  auto source = open_nvidia_smi(program);
  ASSERT_TRUE(source.ok());
  RunView view;
  (*source)->read(&view);
  EXPECT_EQ(view.devices->front().busy_pct, 91);
  EXPECT_EQ(view.device_processes->front().device, 0);
  EXPECT_FALSE(open_nvidia_smi("/nowhere/nvidia-smi").ok());
}

}  // namespace
}  // namespace eaglet::monitor

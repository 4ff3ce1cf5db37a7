// NVML against a made-up library (tests/fake_nvml.cc), whose scenario file says what each call answers.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/clock.h"
#include "base/files.h"
#include "base/test_directory.h"
#include "monitor/child_output.h"
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

TEST(Nvml, WhatCrossesTheLink) {
  const std::string path = test_directory() + "/scenario";
  std::ofstream(path)
      << "device name=H200 busy=99 tensor=37 rx=4000 tx=100 gen=5 max_gen=5 width=16 max_width=16\n"
         "device name=A100 busy=99 rx=2000000 tx=30000 gen=3 max_gen=4 width=8 max_width=16\n";
  ::setenv("FAKE_NVML_SCENARIO", path.c_str(), 1);
  auto source = open_nvml(EAGLET_FAKE_NVML);
  ASSERT_TRUE(source.ok());
  int in = 0, out = 0;
  for (int look = 0; look < 8; ++look) {
    RunView view;
    (*source)->read(&view);
    const DeviceView &counts = view.devices->front(), &measures = view.devices->back();
    EXPECT_EQ(counts.link_generation, 5);
    EXPECT_EQ(measures.max_link_generation, 4);
    EXPECT_EQ(measures.link_width, 8);
    if (look > 0) {
      EXPECT_DOUBLE_EQ(counts.pcie_in, 4000.0 * 1024 * 1024) << "GPM counts in MiB/s";
      EXPECT_DOUBLE_EQ(counts.pcie_out, 100.0 * 1024 * 1024);
    }
    EXPECT_TRUE(std::isnan(measures.pcie_in) || measures.pcie_in == 2000000.0 * 1024) << "kB/s";
    EXPECT_TRUE(std::isnan(measures.pcie_out) || measures.pcie_out == 30000.0 * 1024);
    in += !std::isnan(measures.pcie_in);
    out += !std::isnan(measures.pcie_out);
  }
  EXPECT_EQ(in, 2) << "a question takes the driver 20 ms: one a look, by turns";
  EXPECT_EQ(out, 2);
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

TEST(NvidiaSmi, SharesAndLinksComeWithTheNextAnswer) {
  const std::string program = test_directory() + "/nvidia-smi";
  std::ofstream(program)
      << "#!/bin/sh\ncase \"$1\" in --query-gpu*pcie*) echo 'Field \"pcie.link\" is not a valid field'; exit "
         "2;;\n"
         "--query-gpu*) echo 'index, uuid, name, utilization.gpu [%]'; echo '0, GPU-x, A100, 91 %'; echo '1, "
         "GPU-y, "
         "A100, 0 %';;\n"
         "--query-compute*) echo 'pid, used_gpu_memory [MiB], gpu_uuid'; echo '4711, 100 MiB, GPU-x'\n"
         "echo '99, 7 MiB, GPU-x'; echo '5, 7 MiB, GPU-y';;\n"
         "pmon) echo '# gpu         pid   type     sm    mem    enc    dec    command '\n"
         "echo '# Idx           #    C/G      %      %      %      %    name '\n"
         "echo '    0       4711     C     83     40      -      -    python '\n"
         "echo '    0         99     C      -      -      -      -    python '\n"
         "echo '    1          -     -      -      -      -      -    -      ';;\n"
         "dmon) printf '# gpu   rxpci   txpci \\n# Idx    MB/s    MB/s \\n    0    1200      35 \\n    1     "
         "  -       - \\n';;"
         " esac\n";
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  NvidiaSmiPace pace;
  pace.ask_every_seconds = 0;
  auto source = open_nvidia_smi(program, pace);
  ASSERT_TRUE(source.ok());
  RunView first, second;
  (*source)->read(&first);  // the second answer: opening asked for the first one
  (*source)->read(&second);
  ASSERT_EQ(second.device_processes->size(), 3u);
  EXPECT_EQ(second.device_processes->at(0).busy_pct, 83);
  EXPECT_EQ(second.device_processes->at(1).busy_pct, 0) << "another one ran, this one did not";
  EXPECT_TRUE(std::isnan(second.device_processes->at(2).busy_pct)) << "of this device nothing is told";
  EXPECT_EQ(second.devices->front().pcie_in, 1200e6);
  EXPECT_EQ(second.devices->front().pcie_out, 35e6);
  EXPECT_TRUE(std::isnan(second.devices->back().pcie_in));
  EXPECT_EQ(second.devices->front().busy_pct, 91) << "a driver that does not know the fields of the link";
}

TEST(ChildOutput, WhatHangsIsEndedAndWhatIsLeftTooIsOurs) {
  ChildOutput child;
  std::string text;
  EXPECT_FALSE(child.start({"/nowhere/program"}));
  EXPECT_FALSE(child.finish(1, &text));
  ASSERT_TRUE(child.start({"sh", "-c", "echo one; sleep 60"}));
  EXPECT_FALSE(child.start({"true"})) << "one at a time";
  const double begin = monotonic_seconds();
  EXPECT_FALSE(child.finish(0.3, &text));
  EXPECT_LT(monotonic_seconds() - begin, 5);
  EXPECT_EQ(text, "one\n");
  text.clear();
  ASSERT_TRUE(child.start({"sh", "-c", "echo two; exit 3"}));
  EXPECT_FALSE(child.finish(10, &text)) << "it failed";
  ASSERT_TRUE(child.start({"echo", "three"}));
  text.clear();
  EXPECT_TRUE(child.finish(10, &text));
  EXPECT_EQ(text, "three\n");
  {
    ChildOutput left;
    ASSERT_TRUE(left.start({"sleep", "60"}));
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
}

}  // namespace
}  // namespace eaglet::monitor

#include "monitor/slow_signals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/files.h"
#include "base/test_directory.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "monitor/data_look.h"

namespace eaglet::monitor {
namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(KernelLog, NamesWhatConcernsARun) {
  const auto oom = parse_kernel_record(
      "3,881,5140900123,-;Out of memory: Killed process 4711 (python3) total-vm:98kB, anon-rss:7kB");
  ASSERT_TRUE(oom);
  EXPECT_EQ(oom->kind, KernelLine::Kind::kKilledForMemory);
  EXPECT_EQ(oom->pid, 4711);
  EXPECT_EQ(oom->name, "python3");
  EXPECT_NEAR(oom->since_boot_seconds, 5140.900123, 1e-6);
  const auto grouped = parse_kernel_record(
      "3,882,6140900123,-;Memory cgroup out of memory: Killed process 12 (pt_data_worker) total-vm:1kB");
  ASSERT_TRUE(grouped);
  EXPECT_EQ(grouped->pid, 12);
  const auto xid = parse_kernel_record(
      "4,900,7000000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen "
      "off the bus.");
  ASSERT_TRUE(xid);
  EXPECT_EQ(xid->kind, KernelLine::Kind::kXid);
  EXPECT_EQ(xid->code, 79);
  EXPECT_EQ(xid->device, "PCI:0000:3b:00");
  EXPECT_TRUE(is_fatal_xid(79));
  EXPECT_FALSE(is_fatal_xid(13));
  const auto hung =
      parse_kernel_record("3,901,8,-;INFO: task python: x:77 blocked for more than 120 seconds.");
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->pid, 77);
  EXPECT_EQ(hung->name, "python: x");
  for (const char* other :
       {"6,1,2,-;usb 1-1: new device", "", ";", "NVRM: Xid (PCI", "6,1;blocked for more than ",
        "6,1,2,-;NVRM: Xid (PCI:1", "6,1,2,-;Killed proces"})
    EXPECT_FALSE(parse_kernel_record(other)) << other;
}

TEST(KernelLog, OnlyLinesSinceTheRunBeganAndNoneWhereItMayNotBeRead) {
  const std::string dir = test_directory();
  const std::string path = dir + "/kmsg";
  write(path,
        "3,1,1000000,-;Out of memory: Killed process 1 (a) x\n3,2,9000000,-;Out of memory: Killed process 2 "
        "(b) x\n"
        " SUBSYSTEM=pci\n6,3,9500000,-;hello\n3,4,9600000,-;Out of memory: Kil");
  KernelLog log(path);
  ASSERT_TRUE(log.known());
  std::vector<KernelLine> lines;
  log.poll(5, &lines);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].pid, 2);
  std::ofstream(path, std::ios::app) << "led process 3 (c) x\n";
  log.poll(5, &lines);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].pid, 3);
  EXPECT_FALSE(KernelLog(dir + "/none").known());
}

TEST(PackageEnergy, AddsPackagesAndWraps) {
  const std::string dir = test_directory();
  EXPECT_TRUE(std::isnan(PackageEnergy(dir + "/none").joules()));
  for (const char* name : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl"}) {
    ASSERT_TRUE(make_directories(dir + "/" + name).ok());
    write(dir + "/" + name + "/energy_uj", "1000000\n");
    write(dir + "/" + name + "/max_energy_range_uj", "9000000\n");
  }
  PackageEnergy energy(dir);
  EXPECT_EQ(energy.joules(), 0);
  write(dir + "/intel-rapl:0/energy_uj", "3000000\n");
  write(dir + "/intel-rapl:0:0/energy_uj", "3000000\n");
  EXPECT_DOUBLE_EQ(energy.joules(), 2);
  write(dir + "/intel-rapl:1/energy_uj", "500000\n");
  EXPECT_DOUBLE_EQ(energy.joules(), 2 + 8.5) << "one counter began anew";
}

TEST(SlowSignals, OnePointEachHalfMinuteAndTheReportOnce) {
  const std::string dir = test_directory();
  SlowSignals slow(dir + "/none", dir + "/none");
  RunSeries series;
  for (int t = 0; t < 9000; ++t) {
    RunView view;
    view.monotonic = t;
    view.processes.emplace();
    view.processes->push_back({});
    view.processes->back().rss_bytes = 5;
    view.processes->push_back({});
    slow.add(0, &view, &series);
  }
  EXPECT_EQ(series.slow.size(), 240u) << "two hours, bounded";
  EXPECT_EQ(series.slow.back().rss_bytes, 5) << "what is not known is left out";
  EXPECT_TRUE(std::isnan(series.slow.back().device_bytes));
  EXPECT_FALSE(series.kernel) << "not readable is unknown, not empty";
  ASSERT_TRUE(make_directories(dir + "/run/draft").ok());
  slow.read_report(dir + "/run/draft", &series);
  EXPECT_TRUE(std::isnan(series.served_acceptance));
  write(dir + "/run/report.json", R"({"served_acceptance_length": 1.02})");
  slow.read_report(dir + "/run/draft", &series);
  EXPECT_EQ(series.served_acceptance, 1.02);
}

TEST(DataLook, MapsAndLayersAreReadFromTheRunsOwnFiles) {
  const std::string dir = test_directory();
  const std::string step = dir + "/out/checkpoint-40";
  ASSERT_TRUE(make_directories(step).ok());
  ASSERT_TRUE(make_directories(dir + "/data").ok());
  std::vector<std::int64_t> d2t = {1, 2, 2};  // ids 1, 3, 4
  std::vector<std::uint8_t> t2d = {0, 1, 0, 1, 1, 0};
  const auto save = [&] {
    return write_safetensors(step + "/model.safetensors",
                             {{"d2t", Dtype::kI64, {3}, d2t.data()}, {"t2d", Dtype::kBool, {6}, t2d.data()}});
  };
  ASSERT_TRUE(save().ok());
  const std::vector<float> states(2 * 4 * 8, 0);
  ASSERT_TRUE(write_safetensors(dir + "/data/hs_0.safetensors",
                                {{"hidden_states", Dtype::kF32, {2, 4, 8}, states.data()}})
                  .ok());
  RunSeries series;
  series.config = Json{{"data_path", dir + "/data"}, {"hidden_size", 8}};
  const std::vector<FileView> files = {{1, 1, step + "/model.safetensors"}};
  look_at_data(RunConfig(series), files, &series.data);
  EXPECT_EQ(series.data.draft_ids, 3);
  EXPECT_EQ(series.data.target_ids, 3);
  EXPECT_TRUE(series.data.maps_agree);
  EXPECT_EQ(series.data.layers, 4);
  EXPECT_EQ(series.data.hidden, 8);
  d2t = {1, 1, 3};  // ids 1, 2, 5: not those of t2d
  ASSERT_TRUE(save().ok());
  DataSeen again;
  look_at_data(RunConfig(series), files, &again);
  EXPECT_EQ(again.draft_ids, 3);
  EXPECT_FALSE(again.maps_agree);
  DataSeen none;
  look_at_data(RunConfig(RunSeries()), {{1, 1, "/nowhere/checkpoint-1/model.safetensors"}}, &none);
  EXPECT_EQ(none.draft_ids, -1);
}

}  // namespace
}  // namespace eaglet::monitor

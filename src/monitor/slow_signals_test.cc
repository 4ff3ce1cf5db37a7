#include "monitor/slow_signals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/files.h"
#include "base/test_directory.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "monitor/activity.h"
#include "monitor/data_look.h"
#include "monitor/idle_power.h"
#include "monitor/verdict.h"

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

RunView device_view(double t, double watts, bool used, double busy = 0) {
  RunView view;
  view.monotonic = t;
  view.devices.emplace();
  view.device_processes.emplace();
  DeviceView device;
  device.index = 0;
  device.busy_pct = busy;
  device.power_w = watts;
  device.limit_w = 700;
  view.devices->push_back(device);
  if (used) view.device_processes->push_back({7, 0, 1e9});
  return view;
}

TEST(IdlePower, TheLowestWholeMinuteWithoutAProcess) {
  IdlePower idle;
  std::map<std::int64_t, double> watts;
  double t = 0;
  const auto pass = [&](int seconds, double draw, bool used, double busy = 0) {
    for (int i = 0; i < seconds; ++i) idle.add(device_view(t++, draw, used, busy), &watts);
  };
  pass(50, 120, false);
  EXPECT_TRUE(watts.empty()) << "not yet a minute";
  pass(5, 40, true);
  pass(50, 120, false);
  EXPECT_TRUE(watts.empty()) << "a process came between";
  pass(30, 120, false);
  EXPECT_DOUBLE_EQ(watts[0], 120);
  pass(90, 70, false);
  EXPECT_DOUBLE_EQ(watts[0], 70);
  pass(90, 110, false);
  EXPECT_DOUBLE_EQ(watts[0], 70) << "the lowest stays";
  pass(90, 30, false, 40);
  EXPECT_DOUBLE_EQ(watts[0], 70) << "busy is not idle, whoever it is";
}

TEST(IdlePower, TheShareAboveIdleIsMeasuredFromIt) {
  RunSeries series;
  for (int t = 0; t < 10; ++t) series.views.push_back(device_view(t, 310, true, 95));
  const Thresholds thresholds;
  EXPECT_NEAR(activity_of(series, thresholds).above_idle, 240.0 / 630, 1e-9) << "70 W: a tenth of the limit";
  series.idle_watts[0] = 120;
  EXPECT_NEAR(activity_of(series, thresholds).above_idle, 190.0 / 580, 1e-9);
  series.idle_watts[0] = 400;
  EXPECT_NEAR(activity_of(series, thresholds).above_idle, 240.0 / 630, 1e-9) << "no idle board draws that";
}

TEST(Mfu, AgainstADeclaredPeakWithoutAGpu) {
  RunSeries series;
  series.log_known = true;
  series.log.metrics["tokens_per_second"] = {{100, 1, 500}};
  series.config = Json{{"hidden_size", 576},
                       {"num_heads", 9},
                       {"num_kv_heads", 3},
                       {"head_dim", 64},
                       {"intermediate_size", 1536},
                       {"draft_vocab_size", 32000},
                       {"ttt_steps", 3},
                       {"train_samples", 1},
                       {"real_tokens", 1024},
                       {"fill_ratio", 0.5}};
  RunView view;
  view.monotonic = 1;
  series.views.push_back(view);
  const auto mfu = [&](const Thresholds& thresholds) -> std::string {
    for (const Judgement& j : make_verdict(series, thresholds).judgements)
      if (j.name == "mfu") return j.reason;
    return {};
  };
  EXPECT_EQ(mfu(Thresholds()), "") << "what a CPU can do is not known by name";
  Thresholds declared;
  declared.peak_tflops = 0.9;
  // 0.457 GFLOP a token (the table of FLOP counts), 500 tokens/s, half of the positions padding.
  EXPECT_EQ(mfu(declared),
            "MFU 25 %, 51 % with the padding (500 tokens/s x 0.457 GFLOP of 0.9 TFLOP/s declared)");
}

TEST(Steps, SayWhatTheyComeFrom) {
  const auto steps = [](Json config) -> Judgement {
    RunSeries series;
    config.update({{"epochs", 3}, {"train_batches", 11}});
    series.config = std::move(config);
    RunView view;
    view.monotonic = 1;
    series.views.push_back(view);
    for (const Judgement& j : make_verdict(series, Thresholds()).judgements)
      if (j.name == "steps") return j;
    return {};
  };
  EXPECT_EQ(steps({{"total_steps", 33}}).reason, "33 steps = 3 epochs x 11 batches");
  EXPECT_EQ(steps({{"total_steps", 33}, {"max_steps", 33}}).reason, "33 steps = 3 epochs x 11 batches");
  for (const int total : {20, 400}) {
    const Judgement told = steps({{"total_steps", total}, {"max_steps", total}});
    EXPECT_EQ(told.reason, std::to_string(total) + " steps, as max_steps says; 3 epochs x 11 batches are 33");
    EXPECT_EQ(told.level, Level::kOk);
    EXPECT_EQ(steps({{"total_steps", total}}).level, Level::kWarn);
  }
}

/// MFU as the run prints it, beside GPUs that draw 560 of 700 W: r 0.78.
Judgement printed_mfu(double mfu, double fill = kNotKnown) {
  RunSeries series;
  for (int t = 0; t < 10; ++t) series.views.push_back(device_view(t, 560, true, 97));
  series.log_known = true;
  series.log.metrics["mfu_ratio"] = {{100, 1, mfu}};
  if (!std::isnan(fill)) series.log.metrics["fill_ratio"] = {{100, 1, fill}};
  for (const Judgement& j : make_verdict(series, Thresholds()).judgements)
    if (j.name == "mfu") return j;
  return {};
}

TEST(Mfu, AgainstThePower) {
  EXPECT_EQ(printed_mfu(0.60).reason, "MFU 60 %") << "1.3 times apart";
  const Judgement remark = printed_mfu(0.40);
  EXPECT_EQ(remark.level, Level::kOk) << "a remark changes no verdict";
  EXPECT_EQ(remark.reason, "MFU 40 %; 1.9 times less than the power (r 0.78) lets expect");
  EXPECT_EQ(printed_mfu(0.20).level, Level::kOk) << "3.9 times: what many healthy runs reach";
  const Judgement far = printed_mfu(0.15);
  EXPECT_EQ(far.level, Level::kWarn);
  EXPECT_NE(far.reason.find("5.2 times less than the power (r 0.78) lets expect: is the token count"),
            std::string::npos)
      << far.reason;
  EXPECT_FALSE(far.advice.empty());
  EXPECT_EQ(printed_mfu(0.15, 0.5).level, Level::kOk) << "half of what is computed is padding: 2.6 times";
  EXPECT_NE(printed_mfu(1.3).reason.find("1.7 times more"), std::string::npos);
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
  look_at_data(RunConfig(series), files, "", &series.data);
  EXPECT_EQ(series.data.draft_ids, 3);
  EXPECT_EQ(series.data.target_ids, 3);
  EXPECT_TRUE(series.data.maps_agree);
  EXPECT_EQ(series.data.layers, 4);
  EXPECT_EQ(series.data.hidden, 8);
  d2t = {1, 1, 3};  // ids 1, 2, 5: not those of t2d
  ASSERT_TRUE(save().ok());
  DataSeen again;
  look_at_data(RunConfig(series), files, "", &again);
  EXPECT_EQ(again.draft_ids, 3);
  EXPECT_FALSE(again.maps_agree);
  DataSeen none;
  look_at_data(RunConfig(RunSeries()), {{1, 1, "/nowhere/checkpoint-1/model.safetensors"}}, "", &none);
  EXPECT_EQ(none.draft_ids, -1);
  look_at_data(RunConfig(RunSeries()), {}, dir + "/data", &none);
  EXPECT_EQ(none.layers, 4) << "no configuration: where its open files lie";
}

}  // namespace
}  // namespace eaglet::monitor

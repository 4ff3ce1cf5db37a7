#include "monitor/gpu_page.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "monitor/devices.h"
#include "monitor/http.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

std::string page_of(const char* exporter) {
  const auto text = read_file(EAGLET_TESTDATA "/watch/gpu-exporters/" + std::string(exporter) + ".txt");
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

TEST(GpuPage, DcgmExporter) {
  const GpuPage page = read_gpu_page(page_of("dcgm-exporter"));
  EXPECT_EQ(page.exporter, "dcgm-exporter");
  ASSERT_EQ(page.gpus.size(), 2u);
  const DeviceView& one = page.gpus[0].view;
  EXPECT_EQ(one.index, 0);
  EXPECT_EQ(one.id, "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52");
  EXPECT_EQ(one.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(one.busy_pct, 97);
  EXPECT_EQ(one.power_w, 561.25);
  EXPECT_EQ(one.limit_w, 700) << "by its name: the exporter does not tell it";
  EXPECT_EQ(one.energy_j, 81234567.890) << "mJ";
  EXPECT_EQ(one.used_bytes, (60210.0 + 518) * 1024 * 1024) << "MiB, with what the driver reserves";
  EXPECT_EQ(one.total_bytes, (60210.0 + 518 + 20831) * 1024 * 1024);
  EXPECT_EQ(one.reserved_bytes, 518.0 * 1024 * 1024);
  EXPECT_EQ(one.celsius, 61);
  EXPECT_EQ(one.clock_mhz, 1755);
  EXPECT_EQ(one.tensor_pct, 31.25) << "of 1";
  EXPECT_EQ(one.slow_reasons, 4u);
  EXPECT_EQ(one.ecc_uncorrected, 0);
  EXPECT_FALSE(one.mig);
  EXPECT_EQ(page.gpus[0].xids, (std::map<std::int64_t, double>{{43, 1}}));
  EXPECT_TRUE(page.gpus[1].xids.empty()) << "0 is none";
  EXPECT_TRUE(std::isnan(page.gpus[1].view.power_w)) << "9223372036854775794: not told";
  EXPECT_TRUE(std::isnan(page.gpus[1].view.celsius)) << "2147483632: not told";
  EXPECT_FALSE(page.processes.has_value()) << "unknown is not nobody";
}

TEST(GpuPage, NvidiaGpuExporter) {
  const GpuPage page = read_gpu_page(page_of("nvidia_gpu_exporter"));
  EXPECT_EQ(page.exporter, "nvidia_gpu_exporter");
  ASSERT_EQ(page.gpus.size(), 2u);
  const DeviceView &first = page.gpus[0].view, &second = page.gpus[1].view;
  EXPECT_EQ(first.index, 0) << "by nvidia_smi_gpu_info, not by the order of the page";
  EXPECT_EQ(first.id, "GPU-aaaa7a7c-7314-46f8-abc4-b88b36dcf3aa") << "as CUDA_VISIBLE_DEVICES has it";
  EXPECT_EQ(first.name, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition");
  EXPECT_EQ(second.busy_pct, 98);
  EXPECT_EQ(second.power_w, 251.3);
  EXPECT_EQ(second.limit_w, 600) << "what is enforced, not what could be set";
  EXPECT_EQ(second.used_bytes, 30601641984);
  EXPECT_EQ(second.total_bytes, 102641958912);
  EXPECT_EQ(second.clock_mhz, 2287);
  EXPECT_EQ(second.energy_j, 5.5e6);
  EXPECT_EQ(second.pcie_in, 2.5e9) << "received by the GPU";
  EXPECT_EQ(second.link_width, 8);
  EXPECT_EQ(second.max_link_width, 16);
  EXPECT_EQ(second.slow_reasons, 4u);
  EXPECT_EQ(page.gpus[1].xids, (std::map<std::int64_t, double>{{79, 1}}));
  ASSERT_TRUE(page.processes);
  ASSERT_EQ(page.processes->size(), 2u);
  EXPECT_EQ(page.processes->front().pid, 10291);
  EXPECT_EQ(page.processes->front().device, 1);
  EXPECT_EQ(page.processes->front().bytes, 2.690646016e9);
  EXPECT_TRUE(std::isnan(page.processes->back().bytes)) << "named, its memory not told";
}

TEST(GpuPage, NvitopExporter) {
  const GpuPage page = read_gpu_page(page_of("nvitop-exporter"));
  EXPECT_EQ(page.exporter, "nvitop-exporter");
  ASSERT_EQ(page.gpus.size(), 1u) << "an instance of MIG is no GPU";
  const DeviceView& one = page.gpus[0].view;
  EXPECT_EQ(one.index, 3);
  EXPECT_EQ(one.name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(one.busy_pct, 88);
  EXPECT_EQ(one.power_w, 301.5);
  EXPECT_EQ(one.limit_w, 400);
  EXPECT_EQ(one.used_bytes, 40960.0 * 1024 * 1024);
  EXPECT_EQ(one.pcie_out, 12.0 * 1024 * 1024);
  EXPECT_TRUE(std::isnan(one.celsius)) << "NaN";
  ASSERT_TRUE(page.processes && page.processes->size() == 1);
  EXPECT_EQ(page.processes->front().pid, 4711);
  EXPECT_EQ(page.processes->front().busy_pct, 86);
  EXPECT_EQ(page.processes->front().bytes, 40000.0 * 1024 * 1024);
}

TEST(GpuPage, WhatIsNoGpuIsPassedOver) {
  for (const char* text :
       {"", "gpu_fan 3\n", "gpu_utilization_Percentage 7\n", "vllm:num_requests_running{engine=\"0\"} 3\n",
        "process_gpu_memory_MiB{index=\"0\",pid=\"7\"} 3\n", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\" 97\n",
        "DCGM_FI_DEV_SOMETHING_NEW{gpu=\"0\"} 97\n", "nvidia_smi_failed_scrapes_total 0\n"}) {
    const GpuPage page = read_gpu_page(text);
    EXPECT_TRUE(page.gpus.empty()) << text;
    EXPECT_EQ(page.exporter, "") << text;
  }
  const GpuPage odd = read_gpu_page(
      "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 7000\nDCGM_FI_DEV_POWER_USAGE{ gpu = \"0\" , UUID=\"\"} 60\n"
      "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",GPU_I_ID=\"3\"} 50\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\"} 0.5\n");
  ASSERT_EQ(odd.gpus.size(), 2u);
  EXPECT_EQ(odd.gpus[0].view.busy_pct, 50) << "thousands of percent are garbage, the second choice is not";
  EXPECT_EQ(odd.gpus[0].view.power_w, 60) << "blanks may stand between labels";
  EXPECT_TRUE(odd.gpus[1].view.mig);
  EXPECT_TRUE(std::isnan(odd.gpus[1].view.busy_pct)) << "of an instance, not of the GPU";
}

/// An exporter whose page can be changed, or that can refuse.
class Exporter {
 public:
  Exporter() {
    auto server = HttpServer::listen("127.0.0.1:0", [this](const HttpRequest& request) {
      const std::lock_guard<std::mutex> lock(mutex_);
      HttpReply reply;
      reply.body = page_;
      if (request.path != "/metrics" || page_.empty()) reply.status = 503;
      return reply;
    });
    EXPECT_TRUE(server.ok());
    server_ = std::move(*server);
    serving_ = std::thread([this] {
      while (!done_) server_->serve(0.02);
    });
  }
  ~Exporter() {
    done_ = true;
    serving_.join();
  }
  void say(const std::string& page) {
    const std::lock_guard<std::mutex> lock(mutex_);
    page_ = page;
  }
  std::string url() const { return server_->url(); }

 private:
  std::mutex mutex_;
  std::string page_;
  std::atomic<bool> done_ = false;
  std::unique_ptr<HttpServer> server_;
  std::thread serving_;
};

std::string dcgm(double busy, double watts, int xid) {
  const std::string labels = "{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H200\"} ";
  return "DCGM_FI_DEV_GPU_UTIL" + labels + std::to_string(busy) + "\nDCGM_FI_DEV_POWER_USAGE" + labels +
         std::to_string(watts) + "\nDCGM_FI_DEV_XID_ERRORS" + labels + std::to_string(xid) + "\n";
}

TEST(GpuExporter, OnlyWhatHappensWhileItIsWatchedIsAnXid) {
  Exporter exporter;
  exporter.say(dcgm(97, 560, 31));
  auto source = open_gpu_exporter(exporter.url(), {.ask_every_seconds = 0, .rest_seconds = 0});
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->name(), "dcgm-exporter");
  const auto look = [&] {
    RunView view;
    (*source)->read(&view);
    return view;
  };
  EXPECT_TRUE(look().devices->front().xids.empty()) << "yesterday's";
  exporter.say(dcgm(97, 560, 79));
  EXPECT_EQ(look().devices->front().xids, (std::vector<std::int64_t>{79}));
  EXPECT_EQ(look().devices->front().xids, (std::vector<std::int64_t>{79})) << "once, and it stays";
  exporter.say("");
  EXPECT_FALSE(look().devices.has_value()) << "away: unknown";
  exporter.say(dcgm(5, 90, 79));
  EXPECT_EQ(look().devices->front().busy_pct, 5) << "back";
  EXPECT_FALSE(look().device_processes.has_value());
}

TEST(GpuExporter, RefusesWhatIsNone) {
  Exporter exporter;
  exporter.say("vllm:num_requests_running 3\n");
  const auto other = open_gpu_exporter(exporter.url());
  EXPECT_EQ(other.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(other.status().message().find("nothing of dcgm-exporter"), std::string::npos);
  exporter.say("");
  EXPECT_NE(open_gpu_exporter(exporter.url() + "metrics").status().message().find("says 503"),
            std::string::npos);
  EXPECT_EQ(open_gpu_exporter("https://node7:9400").status().code(), StatusCode::kUsage);
  EXPECT_EQ(open_gpu_exporter("node7:9400").status().code(), StatusCode::kUsage);
  EXPECT_EQ(open_gpu_exporter("http://127.0.0.1:1").status().code(), StatusCode::kUnavailable);
}

TEST(GpuExporter, GivenItIsReadInsteadOfTheDriver) {
  Exporter exporter;
  exporter.say(dcgm(97, 560, 0));
  ::setenv("EAGLET_NVML", "none", 1);
  ::setenv("EAGLET_NVIDIA_SMI", "none", 1);
  const auto given = open_devices(exporter.url());
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ((*given)->name(), "dcgm-exporter");
  ::setenv("EAGLET_GPU_METRICS", exporter.url().c_str(), 1);
  const auto by_variable = open_devices();
  ASSERT_TRUE(by_variable.ok());
  EXPECT_EQ((*by_variable)->name(), "dcgm-exporter");
  ::setenv("EAGLET_GPU_METRICS", "none", 1);
  const auto none = open_devices();
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->get(), nullptr) << "a machine without GPUs";
  EXPECT_EQ(open_devices("http://127.0.0.1:1").status().code(), StatusCode::kUnavailable)
      << "what was asked for and is not there is no machine without GPUs";
  ::unsetenv("EAGLET_GPU_METRICS");
  ::unsetenv("EAGLET_NVML");
  ::unsetenv("EAGLET_NVIDIA_SMI");
}

// The judgement that matters most, by an exporter alone: busy and cold is no work.
TEST(GpuExporter, WaitingInACollectiveIsSeenThroughIt) {
  const GpuPage page = read_gpu_page(dcgm(100, 112, 0));
  RunSeries series;
  series.live = true;
  for (int t = 0; t < 60; ++t) {
    RunView view;
    view.wall = 1.7e9 + t;
    view.monotonic = t;
    view.only_this_run = true;
    view.devices = {page.gpus.front().view};
    view.processes.emplace();
    ProcessView rank;
    rank.pid = 7;
    rank.command = "python train.py";
    rank.state = 'R';
    rank.cpu_seconds = rank.elapsed_seconds = t;
    view.processes->push_back(rank);
    series.views.push_back(view);
  }
  const Verdict verdict = make_verdict(series, Thresholds());
  std::string reason;
  for (const Judgement& j : verdict.judgements)
    if (j.name == "power") reason = j.reason;
  EXPECT_NE(reason.find("112/700 W (r 0.07): busy at near-idle power"), std::string::npos) << reason;
}

}  // namespace
}  // namespace eaglet::monitor

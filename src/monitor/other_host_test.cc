#include "monitor/other_host.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/host_name.h"
#include "base/test_directory.h"
#include "formats/json.h"
#include "monitor/log_reader.h"
#include "monitor/run_probe.h"
#include "monitor/sampler.h"
#include "monitor/target.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

Verdict judge(const std::string& target, int views = 1) {
  const ProcReader reader;
  const auto found = resolve_target(target, reader);
  EXPECT_TRUE(found.ok()) << found.status().message();
  if (!found.ok()) return {};
  Sampler sampler(*found, reader, nullptr);
  for (int i = 0; i < views; ++i) sampler.sample();
  return make_verdict(sampler.series(), Thresholds());
}

std::string launch_record(const std::string& host, const char* more = "") {
  return R"({"schema":1,"run_id":"k25-a","pid":999999999,"start_time_ticks":5,"host":")" + host + "\"" +
         more + "}";
}

TEST(HostName, OneMachineUnderTwoNames) {
  EXPECT_FALSE(host_name().empty());
  EXPECT_TRUE(same_host("node7", "Node7.cluster.local"));
  EXPECT_FALSE(same_host("node7", "node70"));
  EXPECT_FALSE(same_host("10.0.0.7", "10.1.0.7"));
}

TEST(OtherHost, TheNameOfAnEventFile) {
  EXPECT_EQ(host_of_event_file("runs/a/events.out.tfevents.1700000000.node7.4711.0"), "node7");
  EXPECT_EQ(host_of_event_file("events.out.tfevents.1700000000.node7.cluster.local.4711.0.v2"),
            "node7.cluster.local");
  for (const char* none :
       {"events.out.tfevents.1700000000", "events.out.tfevents.1700000000.4711.0",
        "events.out.tfevents.x.node7.1.0", "model.safetensors", "", "events.out.tfevents...",
        "events.out.tfevents.1.no de.2.3", "events.out.tfevents.1.localhost.2.3"})
    EXPECT_EQ(host_of_event_file(none), "") << none;
}

TEST(OtherHost, LinesThatNameTheMachineTheyComeFrom) {
  EXPECT_EQ(host_of_line("  host      : node7"), "node7");
  EXPECT_EQ(host_of_line("Hostname: gpu-7.lab"), "gpu-7.lab");
  EXPECT_EQ(host_of_line("hostname=gpu7"), "gpu7");
  EXPECT_EQ(host_of_line("node7:4711:4722 [0] NCCL INFO Bootstrap : Using eth0"), "node7");
  EXPECT_EQ(host_of_line("node7:4711:4722 [0] misc/socket.cc NCCL WARN timeout"), "node7");
  for (const char* none : {"host: db.example", "host      : 127.0.0.1", "hostname: localhost", "hosts  : 3",
                           "a:b:c [0] NCCL INFO x", "hostname", "host  ", "4711:4711:1 [0] NCCL INFO x", ""})
    EXPECT_EQ(host_of_line(none), "") << none;
  LogReader reader;
  for (int rank = 0; rank < 200; ++rank)
    reader.feed("node" + std::to_string(rank % 100) + ":7:8 [0] NCCL INFO x\n");
  EXPECT_EQ(reader.facts().hosts.size(), 64u);
  EXPECT_EQ(reader.facts().hosts[1], "node1");
}

TEST(OtherHost, WhoNamesItFirst) {
  RunSeries series;
  RunView view;
  EXPECT_EQ(find_other_host(series, view, "node1").name, "");
  series.log.hosts = {"node7", "node8"};
  EXPECT_EQ(find_other_host(series, view, "node1").name, "node7");
  EXPECT_EQ(find_other_host(series, view, "node8").name, "") << "one of its machines is this one";
  view.files = {{5, 1, "out/events.out.tfevents.1.node5.1.0"}, {9, 1, "out/events.out.tfevents.2.node6.1.0"}};
  EXPECT_EQ(find_other_host(series, view, "node1").name, "node6") << "the newest";
  EXPECT_EQ(find_other_host(series, view, "node6").name, "") << "what the log says is older than its name";
  view.status.emplace();
  view.status->host = "node4";
  EXPECT_EQ(find_other_host(series, view, "node1").proof, "its status.json");
  series.launch_record = Json{{"host", "node3"}};
  const OtherHost found = find_other_host(series, view, "node1");
  EXPECT_EQ(found.name, "node3");
  EXPECT_EQ(found.here, "node1");
  series.launch_record = Json{{"host", 3}};
  EXPECT_EQ(find_other_host(series, view, "node1").name, "node4");
}

// A run on a shared disk, looked at from a machine on which it does not run: nothing dies of that.
TEST(OtherHost, ARunOfAnotherMachineIsNotDead) {
  const std::string dir = test_directory();
  put(dir + "/log.txt", "2026-03-04T10:00:00Z [step 3] loss=7.1\n");
  put(dir + "/launch.json", launch_record("some-other-machine"));
  for (const int views : {1, 3})
    for (const std::string& target : {dir, dir + "/log.txt"}) {
      const Verdict verdict = judge(target, views);
      EXPECT_STREQ(state_word(verdict.state.state), "UNKNOWN") << verdict.headline;
      EXPECT_EQ(verdict_exit_code(verdict), 3) << verdict.headline;
      EXPECT_NE(verdict.headline.find("its launch record says that it runs on some-other-machine"),
                std::string::npos)
          << verdict.headline;
      EXPECT_EQ(verdict.next, "eaglet doctor --host some-other-machine " + dir + "/log.txt");
      EXPECT_EQ(verdict.activity.processes_known, false) << "this machine tells nothing of it";
      for (const Judgement& j : verdict.judgements) EXPECT_NE(j.name, "memory") << "nor its memory";
    }
  put(dir + "/launch.json", launch_record(host_name()));
  EXPECT_STREQ(state_word(judge(dir).state.state), "DEAD") << "it was this machine";
}

TEST(OtherHost, ItsFilesMayStillTellItsEnd) {
  const std::string dir = test_directory();
  put(dir + "/log.txt", "[step 3] loss=7.1\n");
  put(dir + "/launch.json",
      launch_record("some-other-machine", R"x(,"reason":"killed by signal 9 (Killed)")x"));
  EXPECT_STREQ(state_word(judge(dir).state.state), "DEAD");
  put(dir + "/launch.json", launch_record("some-other-machine", R"(,"reason":"exit code 0")"));
  EXPECT_STREQ(state_word(judge(dir).state.state), "FINISHED");
  put(dir + "/launch.json", launch_record("some-other-machine"));
  put(dir + "/log.txt", "[step 3] loss=7.1\ntorch.OutOfMemoryError: CUDA out of memory.\n");
  const Verdict dead = judge(dir);
  EXPECT_STREQ(state_word(dead.state.state), "DEAD");
  EXPECT_NE(dead.headline.find("out of memory"), std::string::npos) << dead.headline;
}

TEST(OtherHost, APidOfAnotherMachineIsNobodyHere) {
  const std::string dir = test_directory();
  const std::string status =
      R"({"schema":1,"pid":1,"host":"some-other-machine","start_time":5,"run_id":"a","phase":"train",)"
      R"("step":3,"total":9,"last_loss":7,"tokens_per_second":5,"next_by":null})";
  put(dir + "/status.json", status);
  put(dir + "/log.jsonl", "");
  const auto found = resolve_target(dir, ProcReader());
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->roots.empty()) << "pid 1 lives on every machine";
  const Verdict verdict = judge(dir, 2);
  EXPECT_STREQ(state_word(verdict.state.state), "UNKNOWN") << verdict.headline;
  EXPECT_NE(verdict.headline.find("its status.json says"), std::string::npos) << verdict.headline;
  std::string why;
  const auto living = probe_run(dir, "liveness", &why);
  ASSERT_TRUE(living.ok());
  EXPECT_FALSE(*living);
  EXPECT_NE(why.find("it runs on some-other-machine"), std::string::npos) << why;
}

}  // namespace
}  // namespace eaglet::monitor

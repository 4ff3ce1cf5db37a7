#include "monitor/metric_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/test_directory.h"
#include "monitor/desync.h"
#include "monitor/event_tail.h"
#include "monitor/log_reader.h"
#include "runlog/event_file.h"

namespace eaglet::monitor {
namespace {

FileView put(const std::string& path, const std::string& text, double mtime) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return {mtime, static_cast<double>(text.size()), path};
}

TEST(MetricTables, LightningsCsv) {
  const std::string text =
      "epoch,lr-AdamW,step,train_loss,val_loss\n0,1e-4,49,7.5,\n0,,99,6.5,\n0,,99,,6.9\n1,,149,nan,\n1,,199,"
      "6.";
  const LogFacts facts = facts_of_csv(text);
  ASSERT_EQ(facts.series("loss").size(), 3u);
  EXPECT_EQ(facts.series("loss")[1].step, 99);
  EXPECT_EQ(facts.series("loss")[1].value, 6.5);
  EXPECT_EQ(facts.series("val_loss").size(), 1u);
  EXPECT_EQ(facts.last_step, 149) << "half a row is not taken";
  ASSERT_TRUE(facts.first_bad);
  EXPECT_EQ(facts.first_bad->step, 149);
  for (std::size_t cut = 0; cut < text.size(); ++cut) (void)facts_of_csv(text.substr(0, cut));
  EXPECT_EQ(facts_of_csv("a,b\n1\n,,,,\n").records, 0);
}

TEST(MetricTables, TheTrainersOwnState) {
  const std::string text =
      R"({"global_step": 200, "max_steps": 1000, "log_history": [{"step": 100, "loss": 7.2, "learning_rate": 1e-4,
          "grad_norm": 1.5, "epoch": 0.1}, {"step": 200, "loss": 6.9}, {"step": "x"}, 7, {"eval_loss": 7.0, "step": 200}]})";
  const LogFacts facts = facts_of_trainer_state(text);
  ASSERT_EQ(facts.series("loss").size(), 2u);
  EXPECT_EQ(facts.series("loss").back().step, 200);
  EXPECT_EQ(facts.series("lr").front().value, 1e-4);
  EXPECT_EQ(facts.series("val_loss").size(), 1u);
  EXPECT_EQ(facts.total_steps, 1000);
  for (const char* odd : {"", "[]", "{", R"({"log_history": 7})", R"({"max_steps": -5, "log_history": []})"})
    EXPECT_EQ(facts_of_trainer_state(odd).records, 0) << odd;
}

TEST(MetricTables, TheNewestFileAndOnlyWhenItChanged) {
  const std::string dir = test_directory();
  const FileView state =
      put(dir + "/checkpoint-100/trainer_state.json", R"({"log_history": [{"step": 100, "loss": 7.2}]})", 50);
  const FileView csv = put(dir + "/version_0/metrics.csv", "step,train_loss\n5,3.0\n", 60);
  MetricTables tables;
  tables.poll({});
  EXPECT_FALSE(tables.any());
  tables.poll({state});
  EXPECT_EQ(tables.facts().last_step, 100);
  tables.poll({state, csv});
  EXPECT_EQ(tables.facts().last_step, 5);
  const FileView longer = put(dir + "/version_0/metrics.csv", "step,train_loss\n5,3.0\n6,2.9\n", 60);
  tables.poll({state, csv});
  EXPECT_EQ(tables.facts().last_step, 5) << "as its listing says, nothing is new";
  tables.poll({state, longer});
  EXPECT_EQ(tables.facts().last_step, 6);
}

TEST(EventTail, StepsOfSeveralFilesAndABrokenMiddle) {
  const std::string dir = test_directory();
  auto writer = EventWriter::open(dir);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->write(100, 1, {{"train/loss_0", 9.5}, {"lr", 1e-4}}).ok());
  const std::vector<FileView> files = {{1, 1, writer->path()}};
  EventTail tail;
  tail.poll({});
  EXPECT_FALSE(tail.any());
  tail.poll(files);
  ASSERT_TRUE(tail.any());
  EXPECT_EQ(tail.facts().last_step, 1);
  ASSERT_TRUE(writer->write(101, 2, {{"train/loss_0", 9.0}}).ok());
  tail.poll(files);
  ASSERT_EQ(tail.facts().series("loss_0").size(), 2u);
  std::ofstream(writer->path(), std::ios::app | std::ios::binary) << std::string(40, 'x');
  ASSERT_TRUE(writer->write(102, 3, {{"train/loss_0", 8.0}}).ok());
  tail.poll(files);
  EXPECT_EQ(tail.facts().last_step, 2) << "what stands behind broken bytes is not guessed";
}

TEST(Desync, TheRankAtTheEarlierCollective) {
  LogReader reader;
  for (const char* rank : {"0", "1", "3"})
    reader.feed(std::string("[rank") + rank + "]:[E304 09:41:08.110422731 ProcessGroupNCCL.cpp:629] [Rank " +
                rank + "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
                (std::string(rank) == "3" ? "8839" : "8841") +
                ", OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600034 milliseconds before timing out.\n");
  EXPECT_EQ(rank_behind(reader.facts().errors), "rank 3 is behind: at collective 8839, others at 8841");
  EXPECT_EQ(rank_behind({}), "");
}

}  // namespace
}  // namespace eaglet::monitor

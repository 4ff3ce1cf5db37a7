#include "monitor/log_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/files.h"
#include "base/rng.h"
#include "base/test_directory.h"
#include "monitor/log_errors.h"
#include "monitor/metric_names.h"
#include "monitor/saved_views.h"

namespace eaglet::monitor {
namespace {

const std::string kCase15 = EAGLET_TESTDATA "/cases/15-progress-bar-in-the-log/";
const std::string kLogs = EAGLET_TESTDATA "/watch/logs/";

std::string text_of(const std::string& path) {
  const auto text = read_file(path);
  EXPECT_TRUE(text.ok()) << path;
  return text.ok() ? *text : std::string();
}

LogFacts read_all(const std::string& text) {
  LogReader reader;
  reader.feed(text);
  return reader.facts();
}

/// Everything a chunking could change, as text.
std::string summary(const LogFacts& f) {
  std::string out = std::to_string(f.records) + " " + std::to_string(f.bars) + " " +
                    std::to_string(f.last_step) + "/" + std::to_string(f.total_steps) + " " +
                    std::to_string(f.lines) + " " + std::to_string(f.recognised) + " " +
                    std::to_string(static_cast<int>(f.phase)) + (f.finished ? " finished" : "") + "\n";
  for (const auto& [name, samples] : f.metrics)
    for (const MetricSample& s : samples)
      out += name + " " + std::to_string(s.step) + " " + std::to_string(s.record) + " " +
             std::to_string(s.value) + "\n";
  for (const LogError& e : f.errors) out += e.kind + " " + e.text + "\n";
  for (const std::string& line : f.last_lines) out += line + "\n";
  return out;
}

std::vector<double> values(const LogFacts& f, const std::string& name) {
  std::vector<double> out;
  for (const MetricSample& s : f.series(name)) out.push_back(s.value);
  return out;
}

TEST(Case15, FusedBarAndRecords) {
  const LogFacts f = read_all(text_of(kCase15 + "fused.log"));
  EXPECT_EQ(f.last_step, 8);
  EXPECT_EQ(f.total_steps, 64);
  EXPECT_EQ(f.records, 4);
  EXPECT_EQ(f.tensors_loaded, 13);
  EXPECT_EQ(f.tensors_skipped, 2);
  EXPECT_TRUE(f.errors.empty());
  EXPECT_THAT(values(f, "loss"), testing::ElementsAre(11.02, 10.873, 10.41, 9.963, 9.48, 9.023, 8.71, 8.333));
  EXPECT_EQ(f.series("loss").front().step, 1);
  EXPECT_DOUBLE_EQ(f.series("acc").back().value, 0.0782);
  EXPECT_DOUBLE_EQ(f.series("lr").back().value, 8e-6);
}

TEST(Case15, WrappedRecords) {
  const LogFacts f = read_all(text_of(kCase15 + "wrapped.log"));
  EXPECT_EQ(f.records, 3);
  EXPECT_THAT(values(f, "loss_0"), testing::ElementsAre(10.912, 10.455, 10.020));
  ASSERT_TRUE(f.first_bad.has_value());
  EXPECT_EQ(f.first_bad->metric, "loss_1");
  EXPECT_EQ(f.first_bad->record, 3);
  EXPECT_THAT(values(f, "full_acc_1"), testing::ElementsAre(0, 1e-3, 0));
  EXPECT_TRUE(f.errors.empty()) << "a WARNING is no crash";
  EXPECT_TRUE(f.warning_seen);
  for (const std::string& line : f.last_lines) EXPECT_EQ(line.find('\x1b'), std::string::npos);
}

TEST(Case15, NoNewlineAnywhere) {
  const LogFacts f = read_all(text_of(kCase15 + "huge_line.log"));
  EXPECT_EQ(f.last_step, 40);
  EXPECT_EQ(f.total_steps, 1000);
  EXPECT_DOUBLE_EQ(f.series("loss").back().value, 9);
}

TEST(Case15, AHugeLogIsReadAtItsEndsOnly) {
  const std::string path = test_directory() + "/train.log";
  std::string block = "start\nTrain batches: 12\n";
  int step = 0;
  std::ofstream out(path, std::ios::binary);
  while (static_cast<std::size_t>(out.tellp()) < (40u << 20)) {
    for (; block.size() < (1u << 20); ++step)
      block +=
          "\rTraining:   0%|x| " + std::to_string(step) + "/900000 [00:40<15:59,  1.00s/step, loss=9.00]";
    out << block;
    block.clear();
  }
  out.close();
  const auto read = read_log_file(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->facts.last_step, step - 1);
  EXPECT_EQ(read->facts.train_batches, 12);
  EXPECT_LT(read->facts.bars, 100000) << "the middle was read";
  EXPECT_NE(read->note.find("last"), std::string::npos);
}

struct Golden {
  const char* file;
  std::int64_t records, bars, last_step;
  const char* metric;
  double last;
};
// What each of the documented formats says; the files are synthetic.
const Golden kGolden[] = {{"speculators.log", 3, 0, 50, "loss_0", NAN},
                          {"custom.log", 1, 0, 20, "loss_1", 10.02},
                          {"specforge.log", 1, 1, 174, "loss", 8.91},
                          {"hf_trainer.log", 3, 1, 120, "lr", 4.6e-5},
                          {"lightning.log", 0, 1, 710, "loss", 7.31},
                          {"tqdm.log", 0, 5, 51, "loss", 7.91},
                          {"llmc.log", 1, 0, 41, "tokens_per_second", 17900},
                          {"eaglet.log", 2, 0, 41, "full_acc_2", 0.0154},
                          {"eaglet.jsonl", 2, 0, 41, "acceptance_length", 1.13},
                          {"server.log", 0, 0, -1, "server_tokens_per_second", 2310.7}};

TEST(GoldenLogs, EachFormatIsRead) {
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.file);
    const LogFacts f = read_all(text_of(kLogs + golden.file));
    EXPECT_EQ(f.records, golden.records);
    EXPECT_EQ(f.bars, golden.bars);
    EXPECT_EQ(f.last_step, golden.last_step);
    ASSERT_FALSE(f.series(golden.metric).empty());
    const double last = f.series(golden.metric).back().value;
    if (std::isnan(golden.last))
      EXPECT_TRUE(std::isnan(last));
    else
      EXPECT_DOUBLE_EQ(last, golden.last);
  }
}

// The device's time by op, in our log and in our line for people, which is read without it.
TEST(LogReader, DeviceTimesByOp) {
  const LogFacts json = read_all(
      R"({"t":1,"event":"step","step":3,"loss":[8.5],"step_seconds":0.5,"device_seconds":{"products":0.25,"other":9}})"
      "\n");
  ASSERT_EQ(json.series("device_products_seconds").size(), 1u);
  EXPECT_DOUBLE_EQ(json.series("device_products_seconds").back().value, 0.25);
  EXPECT_TRUE(json.series("device_other_seconds").empty());
  EXPECT_EQ(canonical_metric("profile/device_head_loss_ms").name, "device_head_loss_seconds");
  EXPECT_DOUBLE_EQ(canonical_metric("profile/device_head_loss_ms").scale, 1e-3);
  const LogFacts line = read_all(
      "step 41/141  epoch 0  loss 8.9 9.2  full_acc 0.06 0.01  length 1.070  lr 1.000e-04  grad_norm 2.000  "
      "1790 "
      "tokens/s  wait 0.4 %  device products 61 % head_loss 20 % attention 5 %  mfu 0.410\n");
  EXPECT_DOUBLE_EQ(line.series("mfu_ratio").back().value, 0.41);
  EXPECT_DOUBLE_EQ(line.series("tokens_per_second").back().value, 1790);
  EXPECT_EQ(line.last_step, 41);
}

TEST(LogReader, TokensSoFarAsTransformersAndTrlPrintThem) {
  const LogFacts hf = read_all(
      "{'loss': 6.9, 'learning_rate': 4.6e-05, 'num_input_tokens_seen': 81920, 'epoch': 0.14}\n"
      "{'loss': 6.8, 'learning_rate': 4.5e-05, 'num_input_tokens_seen': 163840, 'epoch': 0.28}\n");
  ASSERT_EQ(hf.series("tokens_total").size(), 2u);
  EXPECT_DOUBLE_EQ(hf.series("tokens_total").back().value, 163840);
  const LogFacts trl = read_all("{'loss': '6.9', 'num_tokens': '4.2e+05', 'epoch': '0.14'}\n");
  EXPECT_DOUBLE_EQ(trl.series("tokens_total").back().value, 420000);
}

TEST(GoldenLogs, AnyChunkingGivesTheSame) {
  Rng rng(7);
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.file);
    const std::string text = text_of(kLogs + golden.file);
    const std::string whole = summary(read_all(text));
    for (int round = 0; round < 20; ++round) {
      LogReader reader;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = round == 0 ? 1 : 1 + rng.below(97);
        reader.feed(std::string_view(text).substr(at, size));
        if (rng.below(4) == 0) (void)reader.facts();  // looking changes nothing
        at += size;
      }
      EXPECT_EQ(summary(reader.facts()), whole);
    }
  }
}

TEST(GoldenLogs, CutAtEveryByteNeverInventsANumber) {
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.file);
    const std::string text = text_of(kLogs + golden.file);
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      const LogFacts f = read_all(text.substr(0, cut));
      for (const auto& [name, samples] : f.metrics) {
        if (samples.empty() || std::isnan(samples.back().value)) continue;
        bool known = false;  // every number shown stands in the file, digit for digit
        for (std::size_t later = cut; later <= text.size() && !known; later += 1 + text.size() / 7) {
          const LogFacts g = read_all(text.substr(0, later));
          for (const MetricSample& s : g.series(name)) known = known || s.value == samples.back().value;
        }
        EXPECT_TRUE(known) << name << " " << samples.back().value << " at byte " << cut;
      }
    }
  }
}

TEST(LogReader, GarbageNeverHurts) {
  Rng rng(11);
  std::string text =
      text_of(kLogs + "speculators.log") + text_of(kLogs + "specforge.log") + text_of(kLogs + "errors.log");
  for (int round = 0; round < 300; ++round) {
    std::string bad = text;
    for (int i = 0; i < 60; ++i) {
      const char junk[] = "\r\n\0\x1b[]{}'=:,%|/<\xff\xc3 0";
      bad[rng.below(bad.size())] = junk[rng.below(sizeof junk - 1)];
    }
    const LogFacts f = read_all(bad);
    EXPECT_LE(f.last_lines.size(), 20u);
  }
  const LogFacts f = read_all(std::string(1 << 20, 'x') + "\nstep=5 loss=1.5\n");
  EXPECT_EQ(f.last_step, 5);
}

TEST(LogReader, ErrorsOfLaunchersAndRanks) {
  const LogFacts f = read_all(text_of(kLogs + "errors.log"));
  ASSERT_NE(f.cause(), nullptr);
  EXPECT_EQ(f.cause()->kind, "collective_timeout");
  EXPECT_EQ(f.cause()->rank, "1");
  std::vector<std::string> kinds;
  for (const LogError& error : f.errors) kinds.push_back(error.kind);
  EXPECT_THAT(kinds, testing::IsSupersetOf(
                         {"child_exit", "out_of_memory", "device_error", "bus_error", "segfault", "killed"}));
  EXPECT_TRUE(f.errors.front().consequence) << "the launcher's report is not the cause";
  EXPECT_FALSE(find_error("WARNING: RuntimeError: retrying").has_value());
  EXPECT_FALSE(find_error("13 loaded, 2 skipped").has_value());
}

TEST(LogReader, ARunThatWentOnHasNoError) {
  const LogFacts f = read_all("RuntimeError: CUDA error: x\nResuming from checkpoint\nstep=10 loss=5.0\n");
  EXPECT_TRUE(f.errors.empty());
  EXPECT_TRUE(f.resumed);
}

TEST(LogReader, ResumeDropsStepsThatAreDoneAgain) {
  const LogFacts f = read_all(
      "step=100 loss=5.0\nstep=110 loss=nan\nResuming from step 100\nstep=100 loss=5.0\nstep=101 loss=4.9\n");
  EXPECT_EQ(f.last_step, 101);
  EXPECT_FALSE(f.first_bad.has_value());
  EXPECT_THAT(values(f, "loss"), testing::ElementsAre(5.0, 4.9));
}

TEST(LogReader, ACutLastRecordIsNotFinal) {
  EXPECT_EQ(read_all("step=2040 loss=7.31\nstep=2050 loss=7.").last_step, 2040);
  EXPECT_EQ(read_all("\r 10%|#| 1/10 [00:01<00:09,  1.00s/it, loss=5.0]\r 20%|#| 2/10 [00:02<00:0").last_step,
            1);
  EXPECT_EQ(read_all("\r 10%|#| 1/10 [00:01<00:09,  1.00s/it, loss=5.0]").last_step, 1);
}

TEST(LogReader, NumberedStepsOfASetupAreNoTraining) {
  const LogFacts f = read_all(
      "Step 1: loading the model\nStep 2: tokenising\nLoading checkpoint shards:  50%|#####     | 2/4 "
      "[00:10<00:10,  5.00s/it]\n");
  EXPECT_EQ(f.records, 0);
  EXPECT_EQ(f.last_step, -1);
  EXPECT_EQ(f.phase, LogPhase::kLoad);
}

TEST(LogReader, ManyRecordsStayBounded) {
  LogReader reader;
  for (int step = 0; step < 50000; ++step)
    reader.feed("step=" + std::to_string(step) + " loss=" + std::to_string(10 - step * 1e-4) + " lr=1e-4\n");
  const LogFacts f = reader.facts();
  EXPECT_EQ(f.records, 50000);
  EXPECT_LE(f.series("loss").size(), 4096u);
  EXPECT_EQ(f.series("loss").front().step, 0);
  EXPECT_EQ(f.series("loss").back().step, 49999);
}

}  // namespace
}  // namespace eaglet::monitor

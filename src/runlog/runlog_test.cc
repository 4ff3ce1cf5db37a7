#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "base/host_name.h"
#include "formats/json.h"
#include "runlog/event_file.h"
#include "runlog/log_record.h"
#include "runlog/status_file.h"

namespace eaglet {
namespace {

std::string fresh_directory(const std::string& name) {
  const std::string path = testing::TempDir() + "eaglet_runlog_" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

LogRecord step_record(std::int64_t step) {
  LogRecord record;
  record.t = 1700000000.25;
  record.event = "step";
  record.step = step;
  record.epoch = 1;
  record.loss = {8.5, 9.25};
  record.full_acc = {0.5, 0.125};
  record.cond_acc = {0.5, 0.25};
  record.total_loss = 17.75;
  record.acceptance_length = 1.625;
  record.lr = 1e-4;
  record.grad_norm = 2;
  record.tokens_per_second = 1790.5;
  record.step_seconds = 1.125;
  record.data_wait_seconds = 0.25;
  record.fill_ratio = 0.75;
  return record;
}

// The bytes were checked by loading them with TensorBoard 2.21's own reader.
TEST(EventFile, GoldenBytes) {
  EXPECT_EQ(hex(frame_record(version_event(1700000000.0))),
            "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
  EXPECT_EQ(
      hex(frame_record(scalars_event(1700000001.5, 3, {{"train/loss_0", 7.25}}))),
      "220000000000000078113dfd0900006040fc54d94110032a150a130a0c747261696e2f6c6f73735f30150000e840c030a8ac");
}

TEST(EventFile, SeveralScalarsShareOneEventAndStepZeroIsLeftOut) {
  const std::string one = scalars_event(1.0, 0, {{"lr", 1.0}});
  EXPECT_EQ(hex(one), "09000000000000f03f2a0b0a090a026c72150000803f");
  const std::string two = scalars_event(1.0, 300, {{"lr", 1.0}, {"lr", 1.0}});
  EXPECT_EQ(hex(two), "09000000000000f03f10ac022a160a090a026c72150000803f0a090a026c72150000803f");
}

TEST(EventFile, WriterMakesANewFileEachTime) {
  const std::string directory = fresh_directory("events");
  auto first = EventWriter::open(directory);
  auto second = EventWriter::open(directory);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->path(), second->path());
  ASSERT_TRUE(first->write(2.0, 7, {{"train/loss", 1.5}}).ok());
  const std::string bytes = *read_file(first->path());
  const std::string tail = frame_record(scalars_event(2.0, 7, {{"train/loss", 1.5}}));
  ASSERT_GT(bytes.size(), tail.size());
  EXPECT_EQ(bytes.substr(bytes.size() - tail.size()), tail);
  EXPECT_EQ(bytes.size() - tail.size(), 40u);  // the version record
}

TEST(LogRecord, StepLineHasTheAgreedFieldsInOrder) {
  const Json line = *parse_json(log_line(step_record(41)));
  std::vector<std::string> names;
  for (const auto& item : line.items()) names.push_back(item.key());
  EXPECT_THAT(names, testing::ElementsAre("t", "event", "step", "epoch", "loss", "full_acc", "cond_acc",
                                          "total_loss", "outside_share", "supervised_tokens",
                                          "acceptance_length", "lr", "grad_norm", "tokens_per_second",
                                          "tokens_total", "step_seconds", "data_wait_seconds", "fill_ratio",
                                          "mfu_ratio"));
  EXPECT_TRUE(line["mfu_ratio"].is_null());  // not known: null, not left out
  EXPECT_EQ(line["step"], 41);
}

TEST(LogRecord, ReadsBackWhatItWrote) {
  const LogRecord before = step_record(3);
  const Result<LogRecord> after = parse_log_line(log_line(before));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(log_line(*after), log_line(before));
  EXPECT_EQ(after->loss, before.loss);
  EXPECT_EQ(after->acceptance_length, 1.625);
  EXPECT_TRUE(std::isnan(after->mfu_ratio));
}

TEST(LogRecord, DeviceTimesAreThereWhereTheyWereMeasured) {
  LogRecord record = step_record(3);
  EXPECT_EQ(log_line(record).find("device_seconds"), std::string::npos);
  record.device_seconds = {{"products", 0.5}, {"attention", 0.125}};
  const std::string line = log_line(record);
  EXPECT_NE(line.find(R"("device_seconds":{"products":0.5,"attention":0.125})"), std::string::npos) << line;
  EXPECT_EQ(parse_log_line(line)->device_seconds, record.device_seconds);
  EXPECT_TRUE(parse_log_line(R"({"t":1,"event":"step","device_seconds":[1]})")->device_seconds.empty());
}

TEST(LogRecord, NotFiniteLossIsNull) {
  LogRecord record = step_record(0);
  record.loss[1] = std::nan("");
  record.grad_norm = INFINITY;
  const Json line = *parse_json(log_line(record));
  EXPECT_TRUE(line["loss"][1].is_null());
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_TRUE(std::isnan(parse_log_line(log_line(record))->loss[1]));
}

TEST(LogRecord, WrongLinesAreErrorsNeverCrashes) {
  for (const char* line :
       {"", "{", "[]", "3", "null", "{\"event\":1,\"t\":1}", "{\"event\":\"step\"}", "\xff\xfe"})
    EXPECT_FALSE(parse_log_line(line).ok()) << line;
  const Result<LogRecord> odd =
      parse_log_line(R"({"event":"step","t":1,"step":"x","loss":["a",null,2],"lr":"no"})");
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->loss.size(), 3u);
  EXPECT_TRUE(std::isnan(odd->loss[0]));
  EXPECT_EQ(odd->loss[2], 2);
}

TEST(ReadLog, ToleratesAHalfLastLineAtEveryLength) {
  const std::string path = fresh_directory("log") + "/log.jsonl";
  const std::string one = log_line(step_record(0)) + "\n", two = log_line(step_record(1)) + "\n";
  for (std::size_t cut = 0; cut <= two.size(); ++cut) {
    std::ofstream(path, std::ios::binary) << one << two.substr(0, cut);
    const Result<LogFile> log = read_log(path);
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->records.size(), cut == two.size() ? 2u : 1u) << cut;
    EXPECT_EQ(log->half_last_line, cut != 0 && cut != two.size()) << cut;
    EXPECT_EQ(log->broken_lines, 0u);
  }
  ASSERT_TRUE(write_file_atomic(path, "garbage\n" + one).ok());
  EXPECT_EQ(read_log(path)->broken_lines, 1u);
  EXPECT_EQ(read_log(path)->records.size(), 1u);
}

TEST(ReadLog, ResumeCancelsTheStepsThatAreDoneAgain) {
  std::vector<LogRecord> records;
  for (std::int64_t step = 0; step < 5; ++step) records.push_back(step_record(step));
  LogRecord resume;
  resume.t = 1;
  resume.event = "resume";
  resume.step = 3;
  records.push_back(resume);
  records.push_back(step_record(3));
  std::vector<std::string> seen;
  for (const LogRecord& record : effective_records(records))
    seen.push_back(record.event + std::to_string(record.step));
  EXPECT_THAT(seen, testing::ElementsAre("step0", "step1", "step2", "resume3", "step3"));
}

TEST(StatusFile, KeepsTheLastStateWithoutWritingAtEveryStep) {
  const std::string directory = fresh_directory("status");
  StatusFile file(directory);
  RunStatus status;
  status.pid = 4711;
  status.run_id = "abc";
  status.phase = "train";
  status.step = 1;
  status.total = 10;
  status.last_loss = std::nan("");
  status.next_by = 1700000010.5;
  status.device_seconds = {{"products", 0.5}};
  ASSERT_TRUE(file.update(status).ok());
  status.step = 2;  // within the same second: not written
  ASSERT_TRUE(file.update(status).ok());
  Result<RunStatus> read = read_status(directory + "/status.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->step, 1);
  EXPECT_EQ(read->pid, 4711);
  EXPECT_EQ(read->host, host_name());
  EXPECT_TRUE(std::isnan(read->last_loss));
  EXPECT_EQ(read->next_by, 1700000010.5);
  EXPECT_EQ(read->device_seconds, status.device_seconds);
  status.phase = "done";  // a new phase is always written
  status.next_by = 0;
  ASSERT_TRUE(file.update(status).ok());
  read = read_status(directory + "/status.json");
  EXPECT_EQ(read->phase, "done");
  EXPECT_EQ(read->step, 2);
  EXPECT_FALSE(path_exists(directory + "/status.json.tmp"));
}

TEST(StatusFile, DamagedFileIsDataLoss) {
  const std::string path = fresh_directory("status_bad") + "/status.json";
  for (const char* text : {"", "{", "{}", "[1]", "{\"schema\":1,\"pid\":\"x\"}"}) {
    ASSERT_TRUE(write_file_atomic(path, text).ok());
    EXPECT_EQ(read_status(path).status().code(), StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace eaglet

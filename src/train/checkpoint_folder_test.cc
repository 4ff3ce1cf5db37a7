#include "train/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "train/toy_run_test.h"
#include "train/trainer_state.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;

std::function<Status(const std::string&)> three_files(const std::string& content) {
  return [content](const std::string& directory) {
    for (const char* name : {"model.safetensors", kOptimizerFile, kTrainerStateFile})
      EAGLET_RETURN_IF_ERROR(write_file_atomic(directory + "/" + name, name + content));
    return Status();
  };
}

void no_note(const std::string&) {}

void save(const std::string& checkpoints, std::int64_t step) {
  const Status status = write_folder(checkpoints, checkpoint_name(step), three_files("x"), no_note);
  ASSERT_TRUE(status.ok()) << status.message();
}

void cut_file(const std::string& path) {
  fs::resize_file(path, fs::file_size(path) - 1);
}

TEST(TrainerState, TokensOfAnOlderRunStayUnknown) {
  TrainerState state;
  state.step = 0;
  state.batches_per_epoch = 4;
  state.advance(2, 100);
  Json json = trainer_state_to_json(state);
  EXPECT_EQ(trainer_state_from_json(json)->tokens, 100);
  json.erase("tokens");
  TrainerState older = *trainer_state_from_json(json);
  older.advance(2, 100);
  EXPECT_EQ(older.tokens, -1);
  EXPECT_EQ(older.step, 2);
}

TEST(CheckpointName, OnlyExactNamesAreCheckpoints) {
  EXPECT_EQ(checkpoint_name(200), "step-000200");
  EXPECT_EQ(checkpoint_step("step-000200"), 200);
  EXPECT_EQ(checkpoint_step(checkpoint_name(1234567)), 1234567);
  for (const char* name :
       {"step-", "step-12x", "step-000200.tmp", "step-000200.broken-1", "latest", "step--5"})
    EXPECT_FALSE(checkpoint_step(name).has_value()) << name;
}

TEST(CheckpointFolder, WholeUntilAnyByteChangesOrIsCut) {
  const std::string root = toy::fresh_directory("folder");
  save(root, 7);
  const std::string folder = root + "/step-000007";
  ASSERT_TRUE(check_folder(folder).whole) << check_folder(folder).reason;
  for (const char* name : {"model.safetensors", kOptimizerFile, kTrainerStateFile, kCompleteFile}) {
    const std::string path = folder + "/" + name, before = *read_file(path);
    for (std::size_t i = 0; i < before.size(); i += 3) {
      std::string damaged = before;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
      std::ofstream(path, std::ios::binary) << damaged;
      if (name == std::string(kCompleteFile))
        continue;  // below: any answer but a crash; its cut is never whole
      EXPECT_FALSE(check_folder(folder).whole) << name << " byte " << i;
      std::ofstream(path, std::ios::binary) << before.substr(0, i);
      EXPECT_FALSE(check_folder(folder).whole) << name << " cut at " << i;
    }
    std::ofstream(path, std::ios::binary) << before;
  }
  EXPECT_TRUE(check_folder(folder).whole);
}

TEST(CheckpointFolder, DamagedCompleteFileIsNeverWhole) {
  const std::string root = toy::fresh_directory("complete");
  save(root, 7);
  const std::string path = root + "/step-000007/" + kCompleteFile, before = *read_file(path);
  for (std::size_t i = 0; i + 2 < before.size(); ++i) {  // the last byte is a newline
    std::ofstream(path, std::ios::binary) << before.substr(0, i);
    EXPECT_FALSE(check_folder(root + "/step-000007").usable) << i;
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    std::string damaged = before;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    std::ofstream(path, std::ios::binary) << damaged;
    (void)check_folder(root + "/step-000007");
  }
  std::ofstream(path) << R"({"schema":1,"files":[{"name":"../../x","bytes":1,"xxh64":"0"}]})";
  EXPECT_FALSE(check_folder(root + "/step-000007").usable);
}

// The situation of a run that died several times: 90 and 200 whole, 300 with cut weights, 400 never finished,
// 500 with a cut state file, and a folder that is no checkpoint.
TEST(FindNewest, TakesTheNewestWholeByNumberAndSaysWhyNotTheOthers) {
  const std::string root = toy::fresh_directory("newest");
  for (std::int64_t step : {90, 200, 300, 400, 500}) save(root, step);
  fs::rename(root + "/step-000090", root + "/step-90");  // by name order it would be last
  cut_file(root + "/step-000300/model.safetensors");
  fs::remove(root + "/step-000400/" + kCompleteFile);
  fs::rename(root + "/step-000400/model.safetensors", root + "/step-000400/model.safetensors.tmp");
  cut_file(root + "/step-000500/" + std::string(kTrainerStateFile));
  fs::create_directories(root + "/best-notes");
  fs::create_directories(root + "/step-000600.tmp");
  const Result<CheckpointSearch> search = find_newest(root);
  ASSERT_TRUE(search.ok() && search->newest);
  EXPECT_EQ(search->newest->step, 200);
  ASSERT_EQ(search->passed_over.size(), 3u);
  EXPECT_EQ(search->passed_over[0].step, 500);
  EXPECT_THAT(search->passed_over[0].check.reason, testing::HasSubstr("trainer_state.json has"));
  EXPECT_THAT(search->passed_over[1].check.reason, testing::HasSubstr("never finished"));
  EXPECT_THAT(search->passed_over[2].check.reason, testing::HasSubstr("model.safetensors has"));
  EXPECT_THAT(search->unfinished, testing::ElementsAre("step-000600.tmp"));
  for (const char* name : {"step-000300", "step-000400", "step-000500", "step-90", "best-notes"})
    EXPECT_TRUE(path_exists(root + "/" + name)) << name;
  const Result<FoundCheckpoint> named = find_named(root, "step-000300");
  ASSERT_TRUE(named.ok());
  EXPECT_FALSE(named->check.usable);
  EXPECT_EQ(find_named(root, "step-000301").status().code(), StatusCode::kNotFound);
}

TEST(FindNewest, AbsentOptimizerIsUsableDamagedIsNot) {
  const std::string root = toy::fresh_directory("absent");
  save(root, 1);
  save(root, 2);
  fs::remove(root + "/step-000002/" + std::string(kOptimizerFile));
  Result<CheckpointSearch> search = find_newest(root);
  ASSERT_TRUE(search.ok() && search->newest);
  EXPECT_EQ(search->newest->step, 2);
  EXPECT_FALSE(search->newest->check.whole);
  EXPECT_FALSE(search->newest->check.optimizer);
  EXPECT_TRUE(search->newest->check.trainer_state);
  std::ofstream(root + "/step-000002/" + std::string(kOptimizerFile)) << "junk";
  search = find_newest(root);
  EXPECT_EQ(search->newest->step, 1);
  EXPECT_FALSE(find_newest(root + "/none")->newest.has_value());
}

TEST(WriteFolder, FailureLeavesNothingBehindAndTheOldOneWhole) {
  const std::string root = toy::fresh_directory("failure");
  save(root, 3);
  const auto fails = [](const std::string& directory) {
    EAGLET_RETURN_IF_ERROR(write_file_atomic(directory + "/model.safetensors", "half"));
    return Status(StatusCode::kNoSpace, "no space left");
  };
  EXPECT_EQ(write_folder(root, "step-000003", fails, no_note).code(), StatusCode::kNoSpace);
  EXPECT_EQ(write_folder(root, "step-000004", fails, no_note).code(), StatusCode::kNoSpace);
  EXPECT_THAT(*list_directory(root), testing::ElementsAre("step-000003"));
  EXPECT_TRUE(check_folder(root + "/step-000003").whole);
}

TEST(WriteFolder, BrokenOneOfThatNameIsKeptAsideAWholeOneReplaced) {
  const std::string root = toy::fresh_directory("aside");
  save(root, 3);
  ASSERT_TRUE(write_folder(root, "step-000003", three_files("y"), no_note).ok());
  EXPECT_THAT(*list_directory(root), testing::ElementsAre("step-000003"));
  cut_file(root + "/step-000003/model.safetensors");
  std::string heard;
  ASSERT_TRUE(write_folder(root, "step-000003", three_files("z"), [&](const std::string& text) {
                heard = text;
              }).ok());
  EXPECT_THAT(*list_directory(root), testing::ElementsAre("step-000003", "step-000003.broken-1"));
  EXPECT_THAT(heard, testing::HasSubstr("step-000003.broken-1"));
  EXPECT_TRUE(check_folder(root + "/step-000003").whole);
}

}  // namespace
}  // namespace eaglet

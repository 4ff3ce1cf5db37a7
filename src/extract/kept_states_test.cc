#include "extract/kept_states.h"

#include <gtest/gtest.h>

#include "base/test_directory.h"

namespace eaglet {
namespace {

TEST(KeptStates, RoomIsForeseen) {
  ExtractOptions options;
  options.model_path = std::string(EAGLET_TESTDATA) + "/golden_targets/llama_tied";
  options.store_path = test_directory() + "/not there yet";
  options.target_layer_ids = {0, 1, 3};
  const auto said = KeptStates::foresee(options, {10, 20, 30}, 50);
  ASSERT_TRUE(said.ok()) << said.status().what();
  EXPECT_NE(said->find("states of 3 answers"), std::string::npos) << *said;
  // The context of this target is 128 tokens: documents are cut there, so that only their number can fill a
  // disk.
  const auto many = KeptStates::foresee(options, std::vector<std::int64_t>(3, std::int64_t{1} << 40), 50);
  EXPECT_TRUE(many.ok()) << many.status().what();
}

TEST(KeptStates, PromptsThatAloneFillTheDiskAreRefused) {
  ExtractOptions options;
  options.model_path = std::string(EAGLET_TESTDATA) + "/golden_targets/llama_tied";
  options.store_path = "/proc/states";  // no room there, ever
  options.target_layer_ids = {0, 1, 3};
  const auto said = KeptStates::foresee(options, {10}, 50);
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.status().code(), StatusCode::kNoSpace);
}

}  // namespace
}  // namespace eaglet

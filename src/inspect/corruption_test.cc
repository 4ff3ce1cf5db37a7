#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "draft/draft_config.h"
#include "draft/draft_weights.h"
#include "inspect/inspect.h"
#include "store/store_test_helpers.h"

namespace eaglet {
namespace {

// A whole draft (config.json, model.safetensors) damaged everywhere: a draft or a clear error.

const std::string kDraft = EAGLET_TESTDATA "/cases/12-draft-to-target-map-forms/a_offset";

TEST(DraftCorruption, ConfigCutAtEveryByteAndEveryBitFlipped) {
  const std::string whole = *read_file(kDraft + "/config.json");
  const auto read = [](std::string_view text) -> Result<DraftConfig> {
    EAGLET_ASSIGN_OR_RETURN(const Json json, parse_json(text));
    return draft_config_from_json(json);
  };
  ASSERT_TRUE(read(whole).ok());
  const std::size_t end = whole.find_last_of('}');
  int refused = 0, taken = 0;
  for (std::size_t at = 0; at <= end; ++at) {
    ASSERT_EQ(read(std::string_view(whole).substr(0, at)).status().code(), StatusCode::kDataLoss) << at;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto config = read(damaged);
      ++(config.ok() ? taken : refused);
      if (!config.ok()) {
        ASSERT_FALSE(config.status().what().empty()) << at;
      } else if (!config->aux_layers.empty()) {
        ASSERT_TRUE(check_draft_config(*config).ok())
            << at << ": " << damaged.substr(at > 20 ? at - 20 : 0, 40);
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 100);
}

/// A copy of the draft that may be damaged.
std::string copied_draft() {
  const std::string directory = test_directory();
  for (const char* name : {"/config.json", "/model.safetensors"})
    std::filesystem::copy_file(kDraft + name, directory + name);
  return directory;
}

TEST(DraftCorruption, WeightsCutAnywhere) {
  const std::string directory = copied_draft(), path = directory + "/model.safetensors";
  Rng rng(1);
  for (std::size_t length = std::filesystem::file_size(path); length > 0;) {
    length -= std::min<std::size_t>(length, length < 3000 ? 1 : 1 + static_cast<std::size_t>(rng.below(200)));
    std::filesystem::resize_file(path, length);
    const auto draft = read_draft(directory, true, nullptr);
    ASSERT_EQ(draft.status().code(), StatusCode::kDataLoss) << length;
    ASSERT_THAT(draft.status().where(), testing::HasSubstr(directory));
  }
}

TEST(DraftCorruption, WeightsWithBytesChanged) {
  const std::string directory = copied_draft(), path = directory + "/model.safetensors";
  const std::string whole = *read_file(path);
  NoProgress silent;
  Rng rng(2);
  for (std::size_t at = 0; at < whole.size();
       at += at < 3000 ? 1 : 1 + static_cast<std::size_t>(rng.below(100))) {
    poke(path, at, static_cast<char>(whole[at] ^ (1 << rng.below(8))));
    const auto draft = read_draft(directory, true, nullptr);
    const auto looked = inspect({directory, true, 0}, silent);
    if (!draft.ok()) {
      ASSERT_FALSE(draft.status().what().empty());
      ASSERT_FALSE(looked.ok()) << at;
    } else {
      ASSERT_TRUE(looked.ok()) << looked.status().message();
      for (const std::int32_t id : draft->vocab.target_ids) ASSERT_TRUE(id >= 0 && id < draft->config.vocab);
    }
    poke(path, at, whole[at]);
  }
  EXPECT_TRUE(read_draft(directory, true, nullptr).ok());
}

}  // namespace
}  // namespace eaglet

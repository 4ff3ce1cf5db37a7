#include "apps/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"

namespace eaglet::apps {
namespace {
using ::testing::HasSubstr;

class RecipeTest : public ::testing::Test {
 protected:
  RecipeTest() : place_(::testing::TempDir() + "recipe-" + std::to_string(::getpid())) {
    EXPECT_TRUE(make_directories(place_).ok());
  }
  ~RecipeTest() override { std::filesystem::remove_all(place_); }
  std::string file(const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(place_ + "/r.toml", text).ok());
    return place_ + "/r.toml";
  }
  const std::string place_;
};

TEST_F(RecipeTest, ReadsEveryKindOfValueAndResolvesInputPaths) {
  Recipe recipe;
  const Status status = recipe.read(
      file("[run]\noutput_dir = \"runs/a\"\nprompts = \"p.jsonl\"\n[model]\npath = \"sub/m.gguf\"\n"
           "[train]\nlr = 1\nepochs = 2\ntrain_head = false\n[serve]\ndraft_lengths = [1, 4]\n"
           "[extract]\ntarget_layer_ids = [2, 15]\n"));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(recipe.output_dir, "runs/a");
  EXPECT_EQ(recipe.prompts_path, place_ + "/p.jsonl");
  EXPECT_EQ(recipe.model_path, place_ + "/sub/m.gguf");
  EXPECT_EQ(recipe.train.lr, 1.0);
  EXPECT_FALSE(recipe.train.train_head);
  EXPECT_EQ(recipe.serve.draft_lengths, (std::vector<std::int64_t>{1, 4}));
  EXPECT_TRUE(recipe.check().ok());
}

TEST_F(RecipeTest, EveryFieldSurvivesItsOwnToml) {
  Recipe first, second;
  ASSERT_TRUE(first.set("train.lr=3e-4").ok());
  ASSERT_TRUE(first.set("train.loss_fn={\"ce\": 0.1, \"tv\": 0.9}").ok());
  ASSERT_TRUE(first.set("run.prompts=/a \"b\"/p.jsonl").ok());
  const Status status = second.read(file(first.to_toml(true)));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(first.to_toml(false), second.to_toml(false));
  EXPECT_EQ(second.train.loss_fn, "{\"ce\": 0.1, \"tv\": 0.9}");
  EXPECT_EQ(second.prompts_path, "/a \"b\"/p.jsonl");
}

TEST_F(RecipeTest, UnknownKeysAreRefusedWithLineAndNearestName) {
  Recipe recipe;
  const Status key = recipe.read(file("[train]\nlr = 0.1\nepocs = 3\n"));
  EXPECT_EQ(key.code(), StatusCode::kConfig);
  EXPECT_THAT(key.message(), HasSubstr("r.toml:3"));
  EXPECT_THAT(key.message(), HasSubstr("did you mean 'epochs'?"));
  EXPECT_THAT(recipe.read(file("[trian]\n")).message(), HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(recipe.read(file("[train]\nlr = \"fast\"\n")).message(), HasSubstr("train.lr is not a number"));
  EXPECT_THAT(recipe.read(file("[generate]\nseed = -1\n")).message(),
              HasSubstr("generate.seed is not a whole number >= 0"));
  EXPECT_THAT(recipe.read(file("[train\n")).message(), HasSubstr("not a recipe"));
  EXPECT_EQ(recipe.read(place_ + "/none.toml").code(), StatusCode::kNotFound);
}

TEST_F(RecipeTest, FlagsWinAndAreNamedAsSource) {
  Recipe recipe;
  ASSERT_TRUE(recipe.read(file("[train]\nepochs = 2\n")).ok());
  ASSERT_TRUE(recipe.set("train.epochs=7").ok());
  EXPECT_EQ(recipe.train.epochs, 7);
  EXPECT_THAT(recipe.to_toml(true), ::testing::ContainsRegex("epochs = 7 +# flag"));
  EXPECT_EQ(recipe.set("train.epoch=7").code(), StatusCode::kUsage);
  EXPECT_EQ(recipe.set("train.epochs").code(), StatusCode::kUsage);
  EXPECT_EQ(recipe.set("train.epochs=many").code(), StatusCode::kUsage);
}

TEST_F(RecipeTest, ChecksWhatCannotBe) {
  Recipe recipe;
  EXPECT_THAT(recipe.check().message(), HasSubstr("where to work"));
  for (const char* setting : {"run.output_dir=o", "model.path=/m", "run.prompts=/p"})
    ASSERT_TRUE(recipe.set(setting).ok());
  EXPECT_TRUE(recipe.check().ok());
  ASSERT_TRUE(recipe.set("train.max_seq_len=0").ok());
  EXPECT_THAT(recipe.check().message(), HasSubstr("train.max_seq_len = 0 is too small"));
}

}  // namespace
}  // namespace eaglet::apps

#include "apps/suggest.h"

#include <gtest/gtest.h>

namespace eaglet::apps {
namespace {

TEST(Suggest, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("train", "train"), 0u);
  EXPECT_EQ(edit_distance("trian", "train"), 1u);  // a swap is one edit
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Suggest, NamesTheNearestOnlyWhenItIsNear) {
  const std::vector<std::string> known = {"generate", "extract", "train", "evaluate"};
  EXPECT_EQ(nearest_name("trian", known), "train");
  EXPECT_EQ(nearest_name("generat", known), "generate");
  EXPECT_EQ(nearest_name("banana", known), "");
  EXPECT_EQ(nearest_name("x", known), "");
  EXPECT_EQ(nearest_name("train", {}), "");
}

}  // namespace
}  // namespace eaglet::apps

#include "formats/layer_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LayerIds, TwoCountingsOfTheSamePlaces) {
  EXPECT_THAT(*layer_places({2, 4, 6}, LayerConvention::kInput, 8), ElementsAre(2, 4, 6));
  EXPECT_THAT(*layer_places({1, 3, 5}, LayerConvention::kOutput, 8), ElementsAre(2, 4, 6));
  EXPECT_THAT(*layer_places({3, 5, 7}, LayerConvention::kOutput, 8), ElementsAre(4, 6, 8));
  EXPECT_THAT(*layer_places({0, 8}, LayerConvention::kInput, 8), ElementsAre(0, 8));
}

TEST(LayerIds, OutOfRangeNegativeRepeatedOrFallingIsRefused) {
  for (const auto& ids : std::vector<std::vector<std::int32_t>>{{9}, {-1, 2}, {2, 2, 4}, {4, 2}})
    EXPECT_EQ(layer_places(ids, LayerConvention::kInput, 8).status().code(), StatusCode::kUsage);
  for (const auto& ids : std::vector<std::vector<std::int32_t>>{{8}, {-1}, {3, 3}})
    EXPECT_EQ(layer_places(ids, LayerConvention::kOutput, 8).status().code(), StatusCode::kUsage);
  EXPECT_EQ(check_layer_ids({0, 2}, 1, 8).code(), StatusCode::kUsage);
}

TEST(LayerIds, TheUsualThree) {
  EXPECT_THAT(*usual_layer_ids(8), ElementsAre(2, 4, 5));
  EXPECT_THAT(*usual_layer_ids(61), ElementsAre(2, 30, 58));
  for (const std::int64_t shallow : {1, 3, 4, 5, 6}) {
    const auto ids = usual_layer_ids(shallow);
    ASSERT_FALSE(ids.ok()) << shallow;
    EXPECT_THAT(ids.status().message(), HasSubstr("too shallow"));
  }
}

TEST(LayerIds, EachNumberIsExplained) {
  EXPECT_EQ(describe_layer_ids({0, 2, 8}, 8),
            "0 = the embedding, 2 = after 2 of 8 layers, 8 = after all 8 layers (before the final norm)");
}

}  // namespace
}  // namespace eaglet

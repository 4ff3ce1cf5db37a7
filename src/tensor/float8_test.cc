#include "tensor/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace eaglet {
namespace {

TEST(Float8, EveryE4M3ValueComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = f8e4m3_to_f32(static_cast<std::uint8_t>(bits));
    if (std::isnan(value)) {
      EXPECT_EQ(bits & 0x7f, 0x7f);
      continue;
    }
    EXPECT_EQ(f32_to_f8e4m3(value), bits);
  }
  EXPECT_EQ(f8e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(f8e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(f8e4m3_to_f32(0x01), 0x1p-9f);
}

TEST(Float8, RoundsToTheNearestEvenAndSaturates) {
  // Every midpoint between neighbours goes to the even one, everything else to the nearer.
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = f8e4m3_to_f32(static_cast<std::uint8_t>(bits)),
                high = f8e4m3_to_f32(static_cast<std::uint8_t>(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(f32_to_f8e4m3(middle), bits + (bits & 1)) << middle;
    EXPECT_EQ(f32_to_f8e4m3(std::nextafter(middle, low)), bits);
    EXPECT_EQ(f32_to_f8e4m3(-std::nextafter(middle, high)), 0x80 | (bits + 1));
  }
  EXPECT_EQ(f32_to_f8e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_f8e4m3(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(f32_to_f8e4m3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_f8e4m3(-0.0f), 0x80);
}

TEST(Float8, E5M2) {
  EXPECT_EQ(f8e5m2_to_f32(0x3c), 1.0f);
  EXPECT_EQ(f8e5m2_to_f32(0xfb), -57344.0f);
}

}  // namespace
}  // namespace eaglet

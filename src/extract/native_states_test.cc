#include "extract/native_states.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

TEST(NativeStates, SlowWeightsAreSaid) {
  const std::string said = tell_waiting(100, 60, std::uint64_t{547} << 30);
  EXPECT_NE(said.find("60 %"), std::string::npos) << said;
  EXPECT_NE(said.find("--memory"), std::string::npos) << said;
  EXPECT_EQ(tell_waiting(100, 10, 1 << 30), "");  // a little is usual
  EXPECT_EQ(tell_waiting(2, 1.9, 1 << 30), "");   // too short to tell anything
}

}  // namespace
}  // namespace eaglet

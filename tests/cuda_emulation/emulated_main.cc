// Device tests (*_device_test.cc) on the emulation. EAGLET_EMULATION_SEED draws the order of threads, blocks and
// streams.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "emulation.h"
#include "ops/device_test.h"

namespace {

// Nothing may be left behind once all tests are done.
class Emulated : public testing::Environment {
 public:
  void SetUp() override {
    if (const char* seed = std::getenv("EAGLET_EMULATION_SEED")) emulation::set_seed(std::stoull(seed));
    eaglet::Result<std::unique_ptr<eaglet::Accelerator>> device = eaglet::open_cuda(0);
    ASSERT_TRUE(device.ok()) << device.status().message();
    eaglet::use_cuda_ops();
    eaglet::test::set_accelerator(std::move(*device));
  }
  void TearDown() override {
    eaglet::test::set_accelerator(nullptr);
    for (const std::string& fault : emulation::faults()) ADD_FAILURE() << fault;
    EXPECT_EQ(emulation::live_allocations(), 0);
    EXPECT_EQ(emulation::live_library_objects(), 0);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new Emulated);
  return RUN_ALL_TESTS();
}

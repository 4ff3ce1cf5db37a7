// The ops' device tests on a real CUDA device; exit code 77 where there is none.

#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

#include "ops/device_test.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  eaglet::Result<std::unique_ptr<eaglet::Accelerator>> device = eaglet::open_cuda(0);
  if (!device.ok()) {
    std::fprintf(stderr, "skipped: %s\n", device.status().message().c_str());
    return 77;
  }
  std::printf("device: %s, %.1f GiB\n", (*device)->name().c_str(),
              static_cast<double>((*device)->memory_bytes()) / (1 << 30));
  eaglet::use_cuda_ops();
  eaglet::test::set_accelerator(std::move(*device));
  const int result = RUN_ALL_TESTS();
  eaglet::test::set_accelerator(nullptr);
  return result;
}

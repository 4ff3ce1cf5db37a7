// Signals while a product runs: oneDNN before 3.12 keeps its stack pointer in the heap meanwhile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/interrupt.h"
#include "device/gemm.h"

namespace eaglet {
namespace {

TEST(GemmSignals, AStormOfThemChangesNoBit) {
  install_interrupt_handlers();
  constexpr std::int64_t kSize = 256;
  constexpr int kProducts = 400;
  std::vector<float> a(kSize * kSize), b(kSize * kSize), calm(kSize * kSize), stormy(kSize * kSize);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 97) / 97 - 0.5f;
    b[i] = static_cast<float>(i % 89) / 89 - 0.5f;
  }
  const auto multiply = [&](Transpose transposed, std::vector<float>& c) {
    gemm(transposed, Transpose::kNo, kSize, kSize, kSize, 1, a.data(), kSize, b.data(), kSize, 0, c.data(),
         kSize);
  };
  std::atomic<bool> over = false;
  std::atomic<int> sent = 0;
  for (const Transpose transposed : {Transpose::kNo, Transpose::kYes}) {
    multiply(transposed, calm);
    over = false;
    std::thread storm([&] {
      for (; !over; ::usleep(20)) sent += ::kill(::getpid(), SIGUSR1) == 0 ? 1 : 0;
    });
    int differ = 0;
    for (int i = 0; i < kProducts; ++i) {
      multiply(transposed, stormy);
      differ += std::memcmp(calm.data(), stormy.data(), calm.size() * sizeof(float)) != 0 ? 1 : 0;
    }
    over = true;
    storm.join();
    EXPECT_EQ(differ, 0);
  }
  EXPECT_GT(sent, 100);
  EXPECT_TRUE(take_save_request());
}

}  // namespace
}  // namespace eaglet

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "ops/device_test.h"
#include "ops/stored_states.h"

namespace eaglet {
namespace {

using test::DeviceArray;
using test::DeviceFloats;

class StoredStatesOnDevice : public test::OnDevice {};

constexpr std::int64_t kRows = 7;

template <class T>
std::vector<T> random_bits(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed, 5);
  std::vector<T> all(static_cast<std::size_t>(n));
  for (T& value : all) value = static_cast<T>(rng.next());
  return all;
}

std::vector<float> on_host(std::int64_t n) {
  return std::vector<float>(static_cast<std::size_t>(n), -1.0f);
}

// By bits, so that NaNs and signs of zeros count.
void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_F(StoredStatesOnDevice, Bf16IsWidenedAsOnTheHost) {
  for (const std::int64_t width : {1, 31, 300}) {
    const std::int64_t ld = width + 5, to_ld = width + 2;
    const auto from = random_bits<std::uint16_t>(kRows * ld - 5, 1);
    const DeviceArray<std::uint16_t> from_(from);
    const DeviceFloats to(on_host(kRows * to_ld - 2));
    std::vector<float> wanted = on_host(kRows * to_ld - 2);
    widen_bf16(kRows, width, from.data(), ld, wanted.data(), to_ld);
    widen_bf16(kRows, width, from_.data(), ld, to.data(), to_ld);
    expect_same_bits(to.read(), wanted);
  }
}

// Every number there is, at scales that make it overflow, vanish and round.
TEST_F(StoredStatesOnDevice, Fp8IsWidenedAsOnTheHost) {
  std::vector<std::uint8_t> from;
  for (int i = 0; i < 256 * kRows; ++i)
    if (i % 128 != 127) from.push_back(static_cast<std::uint8_t>(i));  // a store has no NaN
  const std::vector<float> scales = {1.0f, 1.0f / 448, 0.3f, 1e-30f, 7e35f, 1.0009f, 3e-38f};
  const std::int64_t width = 254;
  const DeviceArray<std::uint8_t> from_(from);
  const DeviceFloats scales_(scales), to(kRows * width);
  std::vector<float> wanted = on_host(kRows * width);
  widen_fp8(kRows, width, scales.data(), from.data(), width, wanted.data(), width);
  widen_fp8(kRows, width, scales_.data(), from_.data(), width, to.data(), width);
  expect_same_bits(to.read(), wanted);
  EXPECT_EQ(wanted[1], 0x1p-9f);
  EXPECT_EQ(wanted[8], 0x1p-6f);
  EXPECT_EQ(wanted[126], 448.0f);
  EXPECT_EQ(wanted[127 + 126], -448.0f);
}

TEST_F(StoredStatesOnDevice, PlanesAreJoinedAndAddedToTheirBase) {
  for (const std::int64_t width : {1, 33, 257}) {
    const std::int64_t base_ld = width + 3, to_ld = width + 1, n = kRows * width;
    const auto high = random_bits<std::uint8_t>(n, 1), low = random_bits<std::uint8_t>(n, 2);
    const auto base = random_bits<std::uint16_t>(kRows * base_ld, 3);
    const DeviceArray<std::uint8_t> high_(high), low_(low);
    const DeviceArray<std::uint16_t> base_(base),
        bits(std::vector<std::uint16_t>(static_cast<std::size_t>(n)));
    for (const bool differences : {false, true}) {
      const DeviceFloats to(on_host(kRows * to_ld));
      std::vector<float> wanted = on_host(kRows * to_ld);
      std::vector<std::uint16_t> wanted_bits(static_cast<std::size_t>(n));
      join_planes(kRows, width, high.data(), low.data(), differences ? base.data() : nullptr, base_ld,
                  wanted.data(), to_ld, wanted_bits.data(), width);
      join_planes(kRows, width, high_.data(), low_.data(), differences ? base_.data() : nullptr, base_ld,
                  to.data(), to_ld, bits.data(), width);
      expect_same_bits(to.read(), wanted);
      EXPECT_EQ(bits.read(), wanted_bits);
      // zigzag: 2 d for d >= 0, else -2 d - 1
      const int number = high[0] << 8 | low[0], difference = number % 2 == 0 ? number / 2 : -(number + 1) / 2;
      EXPECT_EQ(wanted_bits[0], static_cast<std::uint16_t>(differences ? base[0] + difference : number));
    }
    const DeviceFloats to(on_host(n));
    join_planes(kRows, width, high_.data(), low_.data(), nullptr, 0, to.data(), width, nullptr, 0);
    EXPECT_EQ(to.read().size(), static_cast<std::size_t>(n));
  }
}

}  // namespace
}  // namespace eaglet

// Slots that are filled beside the ops: whatever stream runs when, ops find what was sent for them, and
// nothing is sent over what they still read.

#include <cstring>

#include "device/device_feed.h"
#include "ops/device_test.h"
#include "ops/rows.h"
#include "ops/stored_states.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

using test::accelerator;
using test::DeviceFloats;

class DeviceFeedOnDevice : public test::OnDevice {};

constexpr std::int64_t kRows = 7, kWidth = 64, kPart = 5;  // rows of the first half that is sent

std::vector<std::uint16_t> lot(std::uint32_t number) {
  std::vector<std::uint16_t> values(kRows * kWidth);
  std::uint32_t state = number + 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint16_t>(0x3f00u | (state >> 16 & 0x80ffu));
  }
  return values;
}

void send(DeviceFeed& feed, int slot, const std::vector<std::uint16_t>& values) {
  feed.open_slot(slot);
  std::uint64_t at = 0;
  for (const std::int64_t rows : {kPart, kRows - kPart}) {
    const auto bytes = static_cast<std::uint64_t>(rows * kWidth) * sizeof(std::uint16_t);
    std::memcpy(feed.half(), reinterpret_cast<const char*>(values.data()) + at, bytes);
    feed.send_half(slot, at, bytes);
    at += bytes;
  }
  feed.close_slot(slot);
}

TEST_F(DeviceFeedOnDevice, OpsFindTheirLotAndTheNextOneIsOnItsWay) {
  constexpr int kLots = 60;
  auto feed = accelerator()->open_feed(kRows * kWidth * sizeof(std::uint16_t));
  ASSERT_TRUE(feed.ok()) << feed.status().message();
  const DeviceFloats got(kLots * kRows * kWidth);
  send(**feed, 0, lot(0));
  for (int i = 0; i < kLots; ++i) {
    if (i + 1 < kLots) send(**feed, (i + 1) % 2, lot(static_cast<std::uint32_t>(i) + 1));
    const auto* at = static_cast<const std::uint16_t*>((*feed)->use(i % 2));
    float* to = got.data() + static_cast<std::int64_t>(i) * kRows * kWidth;
    widen_bf16(kRows, kWidth, at, kWidth, to, kWidth);
    widen_bf16(kRows, kWidth, at, kWidth, to, kWidth);  // a later op reads the slot too
    (*feed)->done(i % 2);
  }
  const std::vector<float> all = got.read();
  for (int i = 0; i < kLots; ++i) {
    const std::vector<std::uint16_t> want = lot(static_cast<std::uint32_t>(i));
    for (std::size_t j = 0; j < want.size(); ++j)
      ASSERT_EQ(all[static_cast<std::size_t>(i) * want.size() + j], bf16_to_f32(want[j])) << i << " " << j;
  }
}

TEST_F(DeviceFeedOnDevice, ALotThatNobodyUsedIsSentOver) {
  auto feed = accelerator()->open_feed(kRows * kWidth * sizeof(std::uint16_t));
  ASSERT_TRUE(feed.ok()) << feed.status().message();
  const DeviceFloats got(kRows * kWidth);
  for (std::uint32_t i = 0; i < 3; ++i) send(**feed, 1, lot(i));
  widen_bf16(kRows, kWidth, static_cast<const std::uint16_t*>((*feed)->use(1)), kWidth, got.data(), kWidth);
  (*feed)->done(1);
  const std::vector<std::uint16_t> want = lot(2);
  const std::vector<float> values = got.read();
  for (std::size_t j = 0; j < want.size(); ++j) ASSERT_EQ(values[j], bf16_to_f32(want[j])) << j;
}

TEST_F(DeviceFeedOnDevice, MoreThanTheDeviceHasIsRefused) {
  const auto feed = accelerator()->open_feed(std::uint64_t{1} << 45);
  EXPECT_EQ(feed.status().code(), StatusCode::kNoSpace);
  EXPECT_TRUE(accelerator()->check().ok());
}

}  // namespace
}  // namespace eaglet

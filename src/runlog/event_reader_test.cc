#include "runlog/event_reader.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "runlog/event_file.h"

namespace eaglet {
namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Checked by loading them with TensorBoard 2.21's own reader.
const std::string kVersion =
    "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d";
const std::string kSimple =
    "220000000000000078113dfd0900006040fc54d94110032a150a130a0c747261696e2f6c6f73735f30150000e840c030a8ac";
const std::string kTensor =
    "3800000000000000a3797d57090000a040fc54d94110042a2b0a290a0c747261696e2f6c6f73735f31420a080112002a04000008"
    "414a0d0a090a"
    "077363616c61727320010b7fd25b";

TEST(EventReader, GoldenBytes) {
  EventReader reader;
  std::vector<ScalarEvent> events;
  const std::string bytes = from_hex(kVersion + kSimple);
  ASSERT_TRUE(reader.feed(bytes, &events).ok());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tag, "train/loss_0");
  EXPECT_EQ(events[0].step, 3);
  EXPECT_EQ(events[0].value, 7.25);
  EXPECT_EQ(events[0].wall_time_seconds, 1700000001.5);
  EXPECT_EQ(reader.good_bytes(), bytes.size());
}

TEST(EventReader, TensorForm) {
  EventReader reader;
  std::vector<ScalarEvent> events;
  ASSERT_TRUE(reader.feed(from_hex(kTensor), &events).ok());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tag, "train/loss_1");
  EXPECT_EQ(events[0].step, 4);
  EXPECT_EQ(events[0].value, 8.5);
}

std::string written() {
  return frame_record(version_event(1)) +
         frame_record(scalars_event(2, 0, {{"lr", 1e-4}, {"train/loss", NAN}})) +
         frame_record(scalars_event(3, 300, {{"train/loss_0", 7.5}}));
}

TEST(EventReader, ReadsWhatWeWriteInAnyCut) {
  const std::string bytes = written();
  Rng rng(3);
  for (int round = 0; round < 50; ++round) {
    EventReader reader;
    std::vector<ScalarEvent> events;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + rng.below(20);
      ASSERT_TRUE(reader.feed(std::string_view(bytes).substr(at, size), &events).ok());
      at += size;
    }
    ASSERT_EQ(events.size(), 3u);
    EXPECT_TRUE(std::isnan(events[1].value));
    EXPECT_EQ(events[2].step, 300);
  }
}

TEST(EventReader, EveryFlippedByteIsSeenAndEveryCutWaits) {
  const std::string bytes = written();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    EventReader reader;
    std::vector<ScalarEvent> events;
    EXPECT_FALSE(reader.feed(bad, &events).ok()) << at;
    EXPECT_LT(events.size(), 3u);
    EventReader cut;
    events.clear();
    EXPECT_TRUE(cut.feed(bytes.substr(0, at), &events).ok()) << at;
  }
}

}  // namespace
}  // namespace eaglet

#pragma once

#include <cstdint>

namespace eaglet {

/// A way to a device's memory beside its ops: two slots there, filled in turn by a stream of their own while ops
/// run. The host's memory goes through two pinned halves. Fill a slot (open_slot, half and send_half again and
/// again, close_slot), then use it (use, ops, done), then it may be filled anew. Nothing here waits for ops;
/// half() waits for the copy out of that half. Failures are told by Accelerator::wait() and check().
class DeviceFeed {
 public:
  static constexpr int kSlots = 2;
  static constexpr std::uint64_t kHalfBytes = std::uint64_t{8} << 20;
  virtual ~DeviceFeed() = default;

  /// What is sent from now on goes into this slot, when the ops before done() have read what is there.
  virtual void open_slot(int slot) = 0;
  /// Pinned memory of kHalfBytes to fill.
  virtual void* half() = 0;
  /// Sends the first `bytes` of the half that half() gave last to byte `at` of the slot.
  virtual void send_half(int slot, std::uint64_t at, std::uint64_t bytes) = 0;
  /// All of the slot was sent.
  virtual void close_slot(int slot) = 0;
  /// Ops from now on find the slot as it was closed. Its address on the device.
  virtual const void* use(int slot) = 0;
  /// Ops from now on do not read it any more.
  virtual void done(int slot) = 0;
};

}  // namespace eaglet

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "device/device_feed.h"
#include "device/op_times.h"

namespace eaglet {

/// A device that computes beside the host: its memory, the way there and back. One is open at a time, and one
/// thread drives it. Ops find it by where their arrays lie (device/place.h).
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const std::string& name() const = 0;
  virtual std::uint64_t memory_bytes() const = 0;

  /// Memory of the device, aligned to 16 bytes or more, with any content. kNoSpace when it has no more.
  virtual Result<void*> take(std::uint64_t bytes) = 0;
  /// Waits for the work that may still use it.
  virtual void give_back(void* memory) = 0;
  /// Copies from the host's memory; when it returns, `from` may be changed. In order with the ops before and
  /// after.
  virtual void to_device(void* to, const void* from, std::uint64_t bytes) = 0;
  /// Copies to the host's memory, after the ops before; returns when it is there.
  virtual void to_host(void* to, const void* from, std::uint64_t bytes) = 0;
  /// Two slots of so many bytes that are filled beside the ops. It closes before the device.
  virtual Result<std::unique_ptr<DeviceFeed>> open_feed(std::uint64_t slot_bytes) = 0;
  /// Waits for all work and tells the first failure since the last wait. Ops and copies return nothing: the
  /// device answers later than it is asked. After a failure the device is of no more use.
  virtual Status wait() = 0;
  /// The first failure that is known by now, as wait() tells it, without waiting.
  virtual Status check() = 0;
  /// Has it done all that it was asked for? Does not wait.
  virtual bool idle() = 0;
  /// Measures from now on, or no more, what ops take on the device: events around each, read later, so that
  /// nothing waits. Two events an op, about a microsecond each. Returns what it did before.
  virtual bool time_ops(bool on) = 0;
  /// What was measured since the last call, as far as the device has come; the rest stays for the next call.
  virtual OpTimes take_op_times() = 0;
};

/// Ops are not measured while it lives: work that is not part of a step. `device` may be nullptr.
class UntimedOps {
 public:
  explicit UntimedOps(Accelerator* device)
      : device_(device), before_(device != nullptr && device->time_ops(false)) {}
  ~UntimedOps() {
    if (device_ != nullptr) device_->time_ops(before_);
  }
  UntimedOps(const UntimedOps&) = delete;
  UntimedOps& operator=(const UntimedOps&) = delete;

 private:
  Accelerator* const device_;
  const bool before_;
};

/// How many CUDA devices this program could use now: 0 without a driver.
int cuda_devices();
/// Which one it is among all devices of all machines, whatever number it has here; "" when there is none.
std::string cuda_device_id(int number);
/// Opens CUDA device `number` and makes the ops run on its memory. kUnavailable when there is no driver, no
/// device, or another one is open. Only in programs built with EAGLET_CUDA.
Result<std::unique_ptr<Accelerator>> open_cuda(int number);

}  // namespace eaglet

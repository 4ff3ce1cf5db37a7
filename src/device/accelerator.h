#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

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
  /// Waits for all work and tells the first failure since the last wait. Ops and copies return nothing: the
  /// device answers later than it is asked. After a failure the device is of no more use.
  virtual Status wait() = 0;
  /// The first failure that is known by now, as wait() tells it, without waiting.
  virtual Status check() = 0;
};

/// How many CUDA devices this program could use now: 0 without a driver.
int cuda_devices();
/// Which one it is among all devices of all machines, whatever number it has here; "" when there is none.
std::string cuda_device_id(int number);
/// Opens CUDA device `number` and makes the ops run on its memory. kUnavailable when there is no driver, no
/// device, or another one is open. Only in programs built with EAGLET_CUDA.
Result<std::unique_ptr<Accelerator>> open_cuda(int number);

}  // namespace eaglet

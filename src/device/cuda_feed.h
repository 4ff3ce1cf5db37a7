#pragma once

// For .cu files only.

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/device_feed.h"

namespace eaglet::cuda {

/// kNoSpace when the device has not that much memory.
Result<std::unique_ptr<DeviceFeed>> open_feed(std::uint64_t slot_bytes);

}  // namespace eaglet::cuda

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "comm/device_ranks.h"
#include "device/accelerator.h"

namespace eaglet::apps {

// The CUDA backend as the commands see it, whether this eaglet was built with it (cuda_backend.cc) or not
// (without_cuda.cc).

/// "13.0", or "" when this eaglet was built without CUDA.
std::string cuda_version();
/// Devices that could be used now; 0 without a driver.
int usable_cuda_devices();
/// Opens one and makes the ops run in its memory. kUnavailable.
Result<std::unique_ptr<Accelerator>> open_cuda_backend(int number);
/// Which device it is among all devices of all machines; "" when there is none.
std::string cuda_backend_device_id(int number);
/// open_device_ranks(), between the open devices of all ranks.
Result<std::unique_ptr<DeviceRanks>> open_cuda_ranks(Comm& comm, const DeviceRanksOptions& options);

}  // namespace eaglet::apps

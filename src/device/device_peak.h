#pragma once

#include "device/accelerator.h"

namespace eaglet {

/// Speed of large bf16 products on the open device, in operations per second, measured now (a fraction of a
/// second, 0.6 GB of its memory); 0 when it has not that much memory left or failed.
double measured_device_flops(Accelerator& device);

}  // namespace eaglet

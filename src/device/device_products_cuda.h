#pragma once

#include "device/device_products.h"

namespace eaglet::cuda {

/// For set_device_products().
const DeviceProducts* products_in_bf16();

}  // namespace eaglet::cuda

#include "ops/device_ops.h"

namespace eaglet {
namespace {

const DeviceOps* open_ops = nullptr;

}  // namespace

void set_device_ops(const DeviceOps* ops) {
  open_ops = ops;
}

const DeviceOps* open_device_ops() {
  return open_ops;
}

}  // namespace eaglet

#include "apps/cuda_backend.h"

#include "ops/device_ops.h"

namespace eaglet::apps {

std::string cuda_version() {
  return EAGLET_CUDA_VERSION;
}

int usable_cuda_devices() {
  return cuda_devices();
}

Result<std::unique_ptr<Accelerator>> open_cuda_backend(int number) {
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<Accelerator> device, open_cuda(number));
  use_cuda_ops();
  return device;
}

std::string cuda_backend_device_id(int number) {
  return cuda_device_id(number);
}

Result<std::unique_ptr<DeviceRanks>> open_cuda_ranks(Comm& comm, const DeviceRanksOptions& options) {
  return open_device_ranks(comm, options);
}

}  // namespace eaglet::apps

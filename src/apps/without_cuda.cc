#include "apps/cuda_backend.h"

namespace eaglet::apps {

std::string cuda_version() {
  return "";
}

int usable_cuda_devices() {
  return 0;
}

namespace {
Status without() {
  return Status(StatusCode::kUnavailable, "this eaglet was built without CUDA", "--device",
                "build it with -DEAGLET_CUDA=ON (docs/gpu.md), or leave --device out");
}
}  // namespace

Result<std::unique_ptr<Accelerator>> open_cuda_backend(int) {
  return without();
}

std::string cuda_backend_device_id(int) {
  return "";
}

Result<std::unique_ptr<DeviceRanks>> open_cuda_ranks(Comm&, const DeviceRanksOptions&) {
  return without();
}

}  // namespace eaglet::apps

#include "apps/cuda_backend.h"

namespace eaglet::apps {

std::string cuda_version() {
  return "";
}

int usable_cuda_devices() {
  return 0;
}

Result<std::unique_ptr<Accelerator>> open_cuda_backend(int) {
  return Status(StatusCode::kUnavailable, "this eaglet was built without CUDA", "--device",
                "build it with -DEAGLET_CUDA=ON (docs/gpu.md), or leave --device out");
}

}  // namespace eaglet::apps

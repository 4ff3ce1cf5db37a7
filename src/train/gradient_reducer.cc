#include "train/gradient_reducer.h"

#include "train/device_reducer.h"
#include "train/host_reducer.h"

namespace eaglet {

std::unique_ptr<GradientReducer> make_gradient_reducer(Comm& comm, Accelerator* device, float* gradients,
                                                       std::int64_t elements) {
  if (device != nullptr && comm.device_ranks() != nullptr)
    return std::make_unique<DeviceReducer>(*comm.device_ranks(), *device, gradients, elements);
  return std::make_unique<HostReducer>(comm, gradients, elements);
}

}  // namespace eaglet

#include "ops/swiglu.h"

#include "device/threads.h"
#include "ops/device_ops.h"
#include "ops/vector_math.h"

namespace eaglet {

void swiglu(std::int64_t n, std::int64_t width, const float* gate, const float* up, float* act) {
  if (const DeviceOps* device = device_ops(act)) return device->swiglu(n, width, gate, up, act);
  parallel_for(n * width, 4096, [&](std::int64_t begin, std::int64_t end) {
    vsilu_mul(gate + begin, up + begin, end - begin, act + begin);
  });
}

void swiglu_backward(std::int64_t n, std::int64_t width, float* gate, float* up, float* d_act) {
  if (const DeviceOps* device = device_ops(d_act)) return device->swiglu_backward(n, width, gate, up, d_act);
  parallel_for(n * width, 4096, [&](std::int64_t begin, std::int64_t end) {
    vsilu_mul_backward(gate + begin, up + begin, d_act + begin, end - begin, gate + begin, up + begin,
                       d_act + begin);
  });
}

}  // namespace eaglet

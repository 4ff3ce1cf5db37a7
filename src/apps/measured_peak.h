#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::apps {

/// What the processors of this machine can multiply, measured now with a product of a training step's kind
/// (about a second): what MFU is a share of where no board's name tells it. `type`: "f32", "bf16", or empty
/// for the faster one; comes back as what was measured. In TFLOP/s. kUnavailable in the program that has no
/// maths, or when the processor has no way of its own to multiply in that type.
Result<double> measured_peak_tflops(std::string* type);

}  // namespace eaglet::apps

#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// What matrix products multiply in. Sums are always fp32, and so are weights, gradients and everything that
/// is no matrix product.
enum class ComputeType { kF32, kBf16 };

const char* compute_type_name(ComputeType type);
/// "f32" or "bf16".
Result<ComputeType> parse_compute_type(const std::string& name);
/// The same, and "auto": bf16 where the processor multiplies it by itself. Not by a measurement, which may
/// say one thing today and another tomorrow: work that is gone on with would be of two kinds.
Result<ComputeType> steady_compute_type(const std::string& name);

/// Does this processor multiply bf16 by itself (oneDNN would else emulate it)? Always the same answer here.
bool multiplies_bf16();

/// Speed of a product of a training step's kind (256 rows, weights packed before), in operations per second.
/// 0 when this processor has no way of its own to multiply in the type: oneDNN would emulate it.
double measured_product_flops(ComputeType type);

/// The faster of the two, measured now (about 0.1 s). bf16 must win by a fifth: it also has to round its
/// operands, which the measurement leaves out.
ComputeType fastest_compute_type();

}  // namespace eaglet

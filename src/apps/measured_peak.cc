#include "apps/measured_peak.h"

#include "device/compute_type.h"

namespace eaglet::apps {

Result<double> measured_peak_tflops(std::string* type) {
  ComputeType wanted = ComputeType::kF32;
  if (type->empty()) {
    wanted = fastest_compute_type();
  } else {
    EAGLET_ASSIGN_OR_RETURN(wanted, parse_compute_type(*type));
  }
  *type = compute_type_name(wanted);
  const double flops = measured_product_flops(wanted);
  if (flops <= 0)
    return Status(StatusCode::kUnavailable, "this processor does not multiply in " + *type, "--peak",
                  "give the peak as a number of TFLOP/s");
  return flops / 1e12;
}

}  // namespace eaglet::apps

// For the monitor-only program: what needs the rooms that compute, or curl, says so.
#include "apps/measured_peak.h"
#include "apps/server_probe.h"

namespace eaglet::apps {

Result<double> measured_peak_tflops(std::string*) {
  return Status(StatusCode::kUnavailable, "this program has no maths to measure with", "--peak",
                "eaglet doctor --peak measure with the whole program; or give a number of TFLOP/s");
}

Result<std::unique_ptr<ServerProbe>> open_server_probe(const std::string&, bool) {
  return Status(StatusCode::kUnavailable, "this program cannot ask servers", "--until server-ready",
                "eaglet wait with the whole program; or: curl -f ADDRESS/health");
}

}  // namespace eaglet::apps

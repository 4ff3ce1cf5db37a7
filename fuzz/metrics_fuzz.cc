#include "client/metrics_text.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  for (const eaglet::MetricSample& sample : eaglet::parse_metrics(as_text(data, bytes)))
    promise(!sample.name.empty());
  return 0;
}

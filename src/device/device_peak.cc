#include "device/device_peak.h"

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "device/device_products.h"
#include "device/placed_array.h"

namespace eaglet {
namespace {

// Large enough for the library's best kernels, small enough for every device.
constexpr std::int64_t kSize = 8192;
constexpr int kPeakTurns = 5, kProductsOfATurn = 5;

}  // namespace

double measured_device_flops(Accelerator& device) {
  const DeviceProducts* products = device_products();
  PlacedArray<std::uint16_t> a, b;
  PlacedArray<float> c;
  const std::int64_t n = kSize * kSize;
  if (!c.take(n, &device).ok() || !a.take(n, &device).ok() || !b.take(n, &device).ok()) return 0;
  // Of numbers that are all alike a device draws less power than of real ones, and runs faster.
  std::vector<std::uint16_t> values(static_cast<std::size_t>(n));
  std::uint32_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint16_t>(0x3f00u | (state >> 16 & 0x80ffu));  // about 0.5 to 2, of either sign
  }
  a.write(0, n, values.data());
  b.write(0, n, values.data());
  double best = 0;
  for (int turn = 0; turn <= kPeakTurns; ++turn) {  // the first one chooses the kernel
    const double begin = monotonic_seconds();
    for (int i = 0; i < kProductsOfATurn; ++i)
      products->multiply(Transpose::kNo, Transpose::kYes, kSize, kSize, kSize, a.data(), kSize, b.data(),
                         kSize, 0.0f, c.data(), kSize);
    if (!device.wait().ok()) return 0;
    const double seconds = monotonic_seconds() - begin;
    if (turn > 0) best = std::max(best, 2.0 * kProductsOfATurn * kSize * kSize * kSize / seconds);
  }
  return best;
}

}  // namespace eaglet

#pragma once

#include <string>

namespace eaglet {

/// Seconds since 1970, for records.
double wall_seconds();
/// Seconds on a clock that never jumps, for durations.
double monotonic_seconds();
/// "2026-11-29T21:04:05Z".
std::string rfc3339_utc(double wall_time_seconds);
/// "1h02m", "3m07s", "12.4s".
std::string human_duration(double seconds);
/// "1.88 GB" (decimal units, as disks are sold).
std::string human_bytes(double bytes);

}  // namespace eaglet

#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace eaglet {

/// The group a reason for leaving a row out belongs to, for summaries: "unknown role", "not valid JSON", ...
/// The whole reason stands in the side file.
std::string reason_group(const std::string& reason);

/// Rows left out, counted by group.
using ReasonCounts = std::map<std::string, std::int64_t>;
std::int64_t total_of(const ReasonCounts& counts);
/// "3 unknown role, 1 not valid JSON".
std::string reasons_text(const ReasonCounts& counts);

}  // namespace eaglet

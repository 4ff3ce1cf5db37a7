#pragma once

#include <string>

namespace eaglet {

/// The name of this machine, as the kernel has it; "localhost" when it has none.
std::string host_name();
/// Whether two names may be of one machine: "node7", "NODE7" and "node7.cluster.local" may.
bool same_host(const std::string& a, const std::string& b);

}  // namespace eaglet

#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::apps {

/// The far end of a HostLink: removes `own_directory` (where this program was copied to), reads one request
/// from standard input, answers on standard output until the work is done, standard input ends, or nothing
/// has come from there for a minute. Failures are told to the other end; the Status is for the exit code.
Status serve_host_session(const std::string& own_directory);

}  // namespace eaglet::apps

#pragma once

#include <string>

namespace eaglet::apps {

/// Where downloads and copies of models are kept: EAGLET_CACHE_DIR, $XDG_CACHE_HOME/eaglet, or
/// ~/.cache/eaglet
/// (".cache/eaglet" here when there is no home). scripts/lib.sh and cmake/FindLlamaCpp.cmake say the same.
std::string cache_dir();

}  // namespace eaglet::apps

#pragma once

#include <string>

#include "formats/json.h"

namespace eaglet::apps {

/// Facts that CMake wrote into the main program (apps/build_facts.h.in).
struct BuildFacts {
  std::string version, revision, build_type, compiler;
};

/// What `eaglet --version` says: this build, and the libraries as they are loaded now.
Json version_facts(const BuildFacts& build);

}  // namespace eaglet::apps

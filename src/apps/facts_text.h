#pragma once

#include <cstddef>
#include <string>

#include "formats/json.h"

namespace eaglet::apps {

/// An object as text for people: one aligned line per simple value, then a table per list of objects, of
/// which at most `most_rows` rows are shown and the rest counted.
std::string facts_text(const Json& facts, std::size_t most_rows);

}  // namespace eaglet::apps

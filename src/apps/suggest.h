#pragma once

#include <string>
#include <vector>

namespace eaglet::apps {

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
std::size_t edit_distance(const std::string& from, const std::string& to);

/// The known name nearest to `word`, or "" when none is near enough to be what was meant (a third of its
/// letters, at most 3).
std::string nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace eaglet::apps

#pragma once

#include <string>

namespace eaglet::apps {

/// Writes a result to standard output. What is longer than the terminal goes through a pager, when a person
/// sits there (both streams are terminals, TERM is not dumb): EAGLET_PAGER, else PAGER, else less; "" or cat
/// switches it off. Files and pipes get the text as it is.
void show_text(const std::string& text);

}  // namespace eaglet::apps

#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::apps {

/// One sequence of a file of conversations for a person to look at: its tokens as text, supervised ones
/// between >> and << (and in colour). `model_path`: the target's GGUF for the text of tokens; empty: ids.
/// kNotFound when no row has the id.
Result<std::string> show_row(const std::string& path, const std::string& id, const std::string& model_path,
                             bool color);

}  // namespace eaglet::apps

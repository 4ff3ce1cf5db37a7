#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "verifier/target_tokens.h"

namespace eaglet {

/// TargetTokens of a transformers folder, or of the folder of a config.json. A prompt is what the template
/// wrote, with no token added: what the transformers library and the servers on top of it ask the model.
Result<std::unique_ptr<TargetTokens>> open_folder_tokens(const std::string& path);

}  // namespace eaglet

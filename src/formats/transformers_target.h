#pragma once

#include <string>

#include "base/status.h"
#include "formats/target_model.h"

namespace eaglet {

/// Is `path` a folder, or the config.json of one (read_target_facts then calls the functions below)?
bool is_transformers_target(const std::string& path);
/// The folder itself.
std::string transformers_folder(const std::string& path);

/// A target as vLLM and SGLang serve it: config.json, generation_config.json, tokenizer files. Weights are
/// only looked at for the identity, and may be absent. kConfig: a family whose final norm or head is not the
/// plain one, by name.
Result<TargetFacts> read_transformers_facts(const std::string& path);
/// Embedding, head and final norm; only the files that hold these three are opened.
Result<TargetWeights> read_transformers_weights(const std::string& path);

}  // namespace eaglet

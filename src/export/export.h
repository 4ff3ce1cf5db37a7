#pragma once

#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "draft/draft_weights.h"

namespace eaglet {

enum class GgufType { kF32, kF16, kQ8_0 };

/// llama.cpp's `eagle3` GGUF: metadata, tokenizer copied from the target, d2t absolute, q/k rows permuted as
/// its loader expects. kConfig when the draft uses something llama.cpp cannot serve (norm_output, window,
/// fc_norm, > 1 layer, ...).
Status export_gguf(const DraftWeights& draft, const std::string& target_gguf, GgufType type,
                   const std::string& path);
/// The speculators 0.9.0 layout (config.json, model.safetensors with embed_tokens). `verifier` is written as
/// the verifier's path.
Status export_speculators(const DraftWeights& draft, const std::vector<float>& target_embeddings,
                          const std::string& verifier, const std::string& directory);

}  // namespace eaglet

#pragma once

#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "draft/draft_weights.h"

namespace eaglet {

/// Who the files are for.
enum class ExportLayout { kSpeculators, kSglang, kGguf };

/// Number type of weights in safetensors.
enum class WeightDtype { kF32, kBF16, kF16 };
/// As transformers spells it: "float32", "bfloat16", "float16".
const char* weight_dtype_name(WeightDtype dtype);

/// config.json and model.safetensors in the layout of SpecForge, EAGLE and SGLang: `midlayer.*`, a flat
/// config, no embedding unless the draft has its own. vLLM reads it too.
Status export_sglang(const DraftWeights& draft, WeightDtype dtype, const std::string& directory);

enum class GgufType { kF32, kF16, kQ8_0 };

/// llama.cpp's `eagle3` GGUF: metadata, tokenizer copied from the target, d2t absolute, q/k rows permuted as
/// its loader expects. kConfig when the draft uses something that has no place there (fc_norm, > 1 layer,
/// ...), and, unless `despite_ignored`, something that llama.cpp would ignore (norm_output, a window).
Status export_gguf(const DraftWeights& draft, const std::string& target_gguf, GgufType type,
                   const std::string& path, bool despite_ignored = false);
/// The speculators 0.9.0 layout (config.json, model.safetensors with embed_tokens). `verifier` is written as
/// the verifier's path.
Status export_speculators(const DraftWeights& draft, const std::vector<float>& target_embeddings,
                          const std::string& verifier, const std::string& directory,
                          WeightDtype dtype = WeightDtype::kF32);

}  // namespace eaglet

#pragma once

#include <string>
#include <vector>

#include "draft/draft_weights.h"
#include "export/export.h"

namespace eaglet {

/// Something in a draft that a loader would leave out without a word, or would stumble over.
struct LoaderWarning {
  std::string loader;  // "SGLang before fc_norm", "vLLM 0.32", ...
  std::string what;    // and what it costs
};

/// For everyone who reads the layout (docs/formats/loaders.md, read from their sources).
/// `target_architecture` is the target's GGUF architecture, empty when it is not known.
std::vector<LoaderWarning> loader_warnings(const DraftWeights& draft, ExportLayout layout,
                                           const std::string& target_architecture);

/// Does llama.cpp 0c1e570 hand out the layer inputs of this architecture, which a draft lives on?
bool llama_cpp_marks_layer_inputs(const std::string& architecture);

}  // namespace eaglet

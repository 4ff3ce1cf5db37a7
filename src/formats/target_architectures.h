#pragma once

#include <string>
#include <string_view>

namespace eaglet {

/// Can a model of this GGUF architecture be a target? It must be a causal language model whose layer outputs
/// libllama names "l_out" (so its states can be taken) and whose final norm is an RMS norm before a plain
/// head.
bool is_target_architecture(std::string_view architecture);
/// "llama, qwen3, ...": the ones people ask for, for error messages.
std::string usual_target_architectures();

}  // namespace eaglet

#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// 16 hex digits over the texts of a target's tokens, in the order of their ids: the same for a GGUF and for
/// the folder that it was made of. Over the file's bytes where a folder has only tokenizer.model or
/// vocab.json; empty when the target carries no tokenizer. A vocabulary map keeps it: ids mean nothing under
/// another one. kConfig: a tokenizer with more tokens than the model's embeddings.
Result<std::string> tokenizer_hash(const std::string& target);

}  // namespace eaglet

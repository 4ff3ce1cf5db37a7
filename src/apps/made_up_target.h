#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"
#include "base/status.h"

namespace eaglet::apps {

/// Writes a transformers folder of `layers` layers of Qwen3-30B-A3B's shapes (width 2048, 128 experts of 768,
/// 8 a token, vocabulary 151,936), bf16, made-up values: 1.25 GB a layer, a file each, and 0.6 GB of
/// embeddings. For measuring; a folder that is there is written over.
Status write_made_up_target(const std::string& directory, std::int64_t layers, Progress& progress);
/// Bytes that it takes.
std::uint64_t made_up_target_bytes(std::int64_t layers);

}  // namespace eaglet::apps

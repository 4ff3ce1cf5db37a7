#pragma once

#include <string>

#include "base/status.h"
#include "draft/draft_weights.h"
#include "draft/tensor_source.h"

namespace eaglet {

/// The key under which our own exports keep the whole config as JSON, so that nothing is lost on the way
/// back.
constexpr const char* kDraftConfigKey = "eaglet.draft_config";

/// A draft as llama.cpp serves it (docs/formats/gguf-eagle3.md): ours, or one that llama.cpp's converter
/// made. The rows of q and k are put back, d2t holds target ids. Files without our key are refused where
/// their rotary scaling is more than plain or linear: it cannot be told from the stored divisors.
Result<DraftWeights> read_draft_gguf(const std::string& path, const ReadDraftOptions& options,
                                     LoadReport* report);

/// The common end of all readers (draft_read.cc).
Result<DraftWeights> read_draft_from(const TensorSource& source, const DraftConfig& config,
                                     const ReadDraftOptions& options, LoadReport* report);

}  // namespace eaglet

#pragma once

#include "base/status.h"
#include "draft/draft_config.h"
#include "draft/tensor_source.h"
#include "vocab/draft_vocab.h"

namespace eaglet {

/// The draft-to-target map of a checkpoint: from `d2t` (offsets) held against `t2d`; the identity when the
/// vocabulary is full and there is no map. Absolute ids, an all-zero map or no map at all for a reduced
/// vocabulary are errors (kDataLoss). `ascending` tells whether the stored order was sorted.
Result<DraftVocab> read_draft_map(const TensorSource& source, const DraftConfig& config, bool* ascending);

}  // namespace eaglet

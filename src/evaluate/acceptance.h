#pragma once

#include "batch/packed_batch.h"
#include "draft/draft_model.h"
#include "evaluate/evaluate.h"
#include "evaluate/overlap.h"

namespace eaglet {

/// Adds what the draft does on one packed batch to the report: acceptance by depth over all supervised rows
/// (against the target's best over the whole vocabulary, and inside the draft vocabulary), losses, and the
/// walks for draft lengths 1..K. Sums only: call finish_acceptance() at the end. report->depth and
/// report->walked are sized by the first call.
/// `overlap` (may be nullptr): also the sums of min(p, q); takes steps * rows * draft vocabulary floats.
Status add_acceptance(DraftModel& model, int steps, const PackedBatch& batch, const OverlapInputs* overlap,
                      EvaluateReport* report);
/// Turns loss sums into means and works out acceptance_length.
void finish_acceptance(EvaluateReport* report);

}  // namespace eaglet
